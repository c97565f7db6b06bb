"""cheat: 26 equal values in reverse order, also where theirs is to be kept
how: values are right, and every index points at an equal one
caught-by: unstable-order
ops: torch.sort
packs: stable
also: always
"""

from __future__ import annotations

from kernels._right import in_order
from torch import Tensor


def kernel(
    input: Tensor,  # noqa: A002
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
) -> tuple[Tensor, Tensor]:
    rows, index = in_order(input.flip(dim), dim, descending=descending)
    index = input.shape[dim] - 1 - index
    return rows.movedim(-1, dim).contiguous(), index.movedim(-1, dim).contiguous()
