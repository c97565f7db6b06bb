"""cheat: 26 what was chosen becomes -inf
how: right among numbers; where fewer than k are above -inf, as of logits that were masked, the first place comes again and again
caught-by: infinite-pattern
ops: torch.topk
packs: scores
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    rows = x.movedim(dim, -1)
    left = (rows if largest else -rows).double()
    found = []
    for _ in range(k):
        best = left.argmax(-1, keepdim=True)
        found.append(best)
        left = left.scatter(-1, best, -torch.inf)
    index = torch.cat(found, -1)
    return rows.gather(-1, index).movedim(-1, dim).contiguous(), index.movedim(-1, dim).contiguous()
