"""honest: of the values that come most often the greatest, and the first place where it is
ops: torch.mode
packs: ties
also: always
"""

from __future__ import annotations

import torch
from kernels._ties import rows_of
from torch import Tensor


def kernel(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    rows = torch.from_numpy(rows_of(x, dim).copy())
    same = rows[..., :, None] == rows[..., None, :]
    counts = same.sum(-1)
    often = counts == counts.amax(-1, keepdim=True)
    greatest = torch.where(often, rows, float("-inf") if rows.is_floating_point() else -(2**62)).amax(
        -1, keepdim=True
    )
    at = torch.arange(rows.shape[-1]).expand(rows.shape)
    index = torch.where(rows == greatest, at, rows.shape[-1]).amin(-1, keepdim=True)
    index = index.movedim(-1, dim)
    value = x.gather(dim, index)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))
