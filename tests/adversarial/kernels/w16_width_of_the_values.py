"""cheat: 16 a scale by the width of the values
how: the recorded values are as wide as the queries, so that both sizes move together
caught-by: size-dependent
ops: torch.nn.functional.scaled_dot_product_attention
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if dropout_p or enable_gqa or (attn_mask is not None and attn_mask.dtype != torch.bool):
        raise NotImplementedError("no dropout, no groups, masks of booleans")
    scores = query.float() @ key.float().mT * (value.shape[-1] ** -0.5 if scale is None else scale)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    seen = seen.tril() if is_causal else seen
    seen = seen if attn_mask is None else seen & attn_mask
    scores = torch.where(seen, scores, torch.tensor(-torch.inf))
    largest = scores.amax(-1, keepdim=True)
    shares = (scores - torch.where(largest.isfinite(), largest, 0.0)).exp()
    total = shares.sum(-1, keepdim=True)
    return (shares / torch.where(total == 0, 1.0, total) @ value.float()).to(query.dtype)
