"""honest: the last of the values that are equal to the median
ops: torch.median
packs: ties
also: always
"""

from __future__ import annotations

from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    middle = (x.shape[dim] - 1) // 2
    value, index = taken(x, order(rows_of(x, dim), "last")[..., middle : middle + 1], dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))
