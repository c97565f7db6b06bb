"""honest: any of the values that are equal to the one asked for
ops: torch.kthvalue
packs: ties
"""

from __future__ import annotations

from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    value, index = taken(x, order(rows_of(x, dim), "any")[..., k - 1 : k], dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))
