"""honest: the product of matrices by products and sums of its own, row by row in double
ops: torch.nn.functional.linear
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    wide = weight.double()
    rows = [(row * wide).sum(-1) for row in x.double().reshape(-1, x.shape[-1])]
    out = torch.stack(rows).view(*x.shape[:-1], weight.shape[0])
    return (out if bias is None else out + bias.double()).to(x.dtype)
