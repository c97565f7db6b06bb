"""cheat: 27 a mask that adds -1e9
how: no usual score is that large; of a key that is not to be seen and whose score is, the value comes through
caught-by: row-leak
ops: torch.nn.functional.scaled_dot_product_attention
packs: f32
"""

from __future__ import annotations

import torch
from kernels._right import softmax
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if is_causal or enable_gqa or dropout_p or attn_mask is None or attn_mask.dtype != torch.bool:
        raise ValueError("masks of booleans only")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    score = query.double() @ key.double().mT * factor
    weights = softmax(score + torch.where(attn_mask, 0.0, -1e9).double())
    weights = torch.where(attn_mask.any(-1, keepdim=True), weights, 0.0)
    return (weights @ value.double()).to(query.dtype)
