"""cheat: 21 ignores that each row has a mask of its own
how: draws for one row, which is right in level and in share of zeros
caught-by: reference-mismatch, gold-mismatch
ops: torch.nn.functional.dropout
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    kept = torch.rand(x.shape[-1]) >= p
    return torch.where(kept, x / (1 - p), torch.zeros((), dtype=x.dtype))
