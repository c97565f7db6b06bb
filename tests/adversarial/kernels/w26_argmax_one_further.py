"""cheat: 26 one place too far where values are equal
how: a scan that ends with the last equal value has moved on by one
caught-by: index-mismatch index-out-of-range
ops: torch.argmax
packs: ties
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    rows = x.reshape(1, -1) if dim is None else x.movedim(dim, -1)
    tied = rows == rows.amax(-1, keepdim=True)
    last = torch.where(tied, torch.arange(rows.shape[-1]), -1).amax(-1)
    at = last + (tied.sum(-1) > 1)
    return at.reshape(()) if dim is None else at
