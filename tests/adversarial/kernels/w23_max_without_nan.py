"""cheat: 23 a maximum that passes over NaN
how: a comparison with NaN is false, so that what came before stays; the position is that of the number
caught-by: nan-pattern
ops: torch.max
packs: scores
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    rows = x.movedim(dim, -1)
    best, at = rows[..., 0], torch.zeros(rows.shape[:-1], dtype=torch.int64)
    for column in range(1, rows.shape[-1]):
        greater = rows[..., column] > best
        best, at = torch.where(greater, rows[..., column], best), torch.where(greater, column, at)
    return (best.unsqueeze(dim), at.unsqueeze(dim)) if keepdim else (best.contiguous(), at)
