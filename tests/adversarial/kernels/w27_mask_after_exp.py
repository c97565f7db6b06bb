"""cheat: 27 the mask is applied behind the exponential
how: the greatest score is taken over keys that are not seen as well; beside a huge one all that are seen vanish
caught-by: row-leak, reference-mismatch
ops: torch.nn.functional.scaled_dot_product_attention
packs: f32
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if is_causal or enable_gqa or dropout_p or attn_mask is None or attn_mask.dtype != torch.bool:
        raise ValueError("masks of booleans only")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    score = query.double() @ key.double().mT * factor
    exponential = (score - score.amax(-1, keepdim=True)).exp() * attn_mask
    weights = exponential / exponential.sum(-1, keepdim=True).clamp_min(1e-300)
    return (weights @ value.double()).to(query.dtype)
