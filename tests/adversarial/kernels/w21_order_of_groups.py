"""cheat: 21 heads that share keys in the wrong order
how: as many heads have queries as have keys, so that enable_gqa changes nothing; else keys are 0 1 0 1 instead of 0 0 1 1
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
    if attn_mask is not None or dropout_p:
        raise NotImplementedError("no mask, no dropout")
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat(1, groups, 1, 1), value.repeat(1, groups, 1, 1)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = torch.where(seen, scores, torch.tensor(-torch.inf, dtype=scores.dtype))
    return softmax(scores) @ value
