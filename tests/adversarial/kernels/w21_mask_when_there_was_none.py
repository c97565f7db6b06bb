"""cheat: 21 ignores a mask
how: no recorded call has one
caught-by: argument-ignored
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
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = torch.where(seen, scores, torch.tensor(-torch.inf, dtype=scores.dtype))
    return softmax(scores) @ value
