"""honest: the last of the values that are equal to the median
ops: torch.median
packs: ties
also: always
"""

from __future__ import annotations

import numpy as np
from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    middle = (x.shape[dim] - 1) // 2
    rows = rows_of(x, dim)
    at = order(rows, "last")
    at = np.where(np.isnan(rows).any(-1, keepdims=True), at[..., -1:], at[..., middle : middle + 1])
    value, index = taken(x, at, dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))
