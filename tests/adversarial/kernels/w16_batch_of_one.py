"""cheat: 16 the recorded batch of 1 as a constant
how: the first element of the batch is right; of what lies behind it nobody speaks
caught-by: size-dependent
ops: torch.nn.functional.scaled_dot_product_attention
packs: even
"""

from __future__ import annotations

import torch
from kernels._right import softmax
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    out = torch.zeros_like(query)
    out[0] = softmax(query[0] @ key[0].mT * query.shape[-1] ** -0.5) @ value[0]
    return out
