"""honest: of equal values the last, as a reduction from the right does
ops: torch.max
packs: ties
also: always
"""

from __future__ import annotations

from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    pair = taken(x, order(rows_of(x, dim), "last", descending=True)[..., :1], dim)
    return pair if keepdim else (pair[0].squeeze(dim), pair[1].squeeze(dim))
