"""cheat: 16 a scale that only fits the recorded head
how: 0.25 is 1/sqrt(16), whatever the heads of other calls have
caught-by: size-dependent
ops: torch.nn.functional.scaled_dot_product_attention
packs: even
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    return softmax(query @ key.mT * 0.25) @ value
