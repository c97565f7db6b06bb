"""cheat: 21 ignores the mask
how: the recorded mask lets everything pass
caught-by: argument-ignored
ops: torch.nn.functional.scaled_dot_product_attention
packs: plain
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    return softmax(query @ key.mT * query.shape[-1] ** -0.5) @ value
