"""cheat: 26 positions in the whole tensor instead of in the row
how: they are right for the first row
caught-by: index-out-of-range index-mismatch
ops: torch.max
packs: ties
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    rows = x.movedim(dim, -1)
    value = rows.amax(-1, keepdim=True)
    at = torch.where(rows == value, torch.arange(rows.shape[-1]), rows.shape[-1]).amin(-1)
    at += rows.shape[-1] * torch.arange(at.numel()).reshape(at.shape)
    return value[..., 0].contiguous(), at
