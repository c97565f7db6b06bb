"""honest: sorts, equal values in any order unless their own is asked for
ops: torch.sort
packs: ties
"""

from __future__ import annotations

from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(
    input: Tensor,  # noqa: A002
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
) -> tuple[Tensor, Tensor]:
    return taken(input, order(rows_of(input, dim), "first" if stable else "last", descending=descending), dim)
