"""honest: takes any of equal values, other ones in every call, as a selection with atomics does
ops: torch.topk
packs: ties
"""

from __future__ import annotations

from kernels._ties import order, rows_of, taken
from torch import Tensor


def kernel(
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    chosen = order(rows_of(x, dim), "any", descending=largest)[..., :k]
    # Where no order is asked for, the last of them comes first.
    return taken(x, chosen if sorted else chosen[..., ::-1], dim)
