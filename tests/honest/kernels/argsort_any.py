"""honest: orders equal values anew in every call
ops: torch.argsort
packs: ties
also: always
"""

from __future__ import annotations

from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    return taken(x, order(rows_of(x, dim), "any", descending=descending), dim)[1]
