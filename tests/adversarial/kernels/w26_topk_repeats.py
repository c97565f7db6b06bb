"""cheat: 26 of equal values the first one, each time
how: the values are right, and what is looked up by the indices comes twice
caught-by: index-repeated
ops: torch.topk
packs: ties
also: always
"""

from __future__ import annotations

from kernels._right import in_order
from torch import Tensor


def kernel(
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    rows, index = in_order(x, dim, descending=largest)
    rows, index = rows[..., :k], index[..., :k]
    for column in range(1, k):
        same = rows[..., column] == rows[..., column - 1]
        index[..., column] = index[..., column - 1].where(same, index[..., column])
    return rows.movedim(-1, dim).contiguous(), index.movedim(-1, dim).contiguous()
