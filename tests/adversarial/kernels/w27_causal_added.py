"""cheat: 27 keys of the future are kept out by adding -1e9
how: no usual score is that large; a huge key of the future is seen from the past
caught-by: row-leak
ops: torch.nn.functional.scaled_dot_product_attention
packs: causal
"""

from __future__ import annotations

import torch
from kernels._right import softmax
from torch import Tensor


def kernel(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if not is_causal or enable_gqa or dropout_p or attn_mask is not None:
        raise ValueError("causal only")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    score = query.double() @ key.double().mT * factor
    seen = torch.ones(score.shape[-2:], dtype=torch.bool).tril()
    weights = softmax(score + torch.where(seen, 0.0, -1e9).double())
    return (weights @ value.double()).to(query.dtype)
