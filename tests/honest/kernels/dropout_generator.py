"""honest: draws its mask from a generator of its own
ops: torch.nn.functional.dropout
also: timing
"""

from __future__ import annotations

import torch
from torch import Tensor

_GENERATOR = torch.Generator().manual_seed(7)


def kernel(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training:
        return x.clone()
    kept = torch.rand(x.shape, generator=_GENERATOR) >= p
    return torch.where(kept, x / (1 - p), torch.zeros((), dtype=x.dtype))
