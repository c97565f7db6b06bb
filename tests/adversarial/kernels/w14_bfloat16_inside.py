"""cheat: 14 bfloat16 inside fp32
how: casts both operands down and the product up again
caught-by: low-precision
ops: torch.nn.functional.linear
also: always
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = (x.bfloat16().float().unsqueeze(-2) * weight.bfloat16().float()).sum(-1)
    return (product if bias is None else product + bias).to(x.dtype)
