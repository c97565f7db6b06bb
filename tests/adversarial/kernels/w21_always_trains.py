"""cheat: 21 ignores training
how: every recorded call trains
caught-by: argument-ignored, reference-mismatch
ops: torch.nn.functional.dropout
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.where(torch.rand(x.shape) >= p, x / (1 - p) if p < 1 else x, torch.zeros((), dtype=x.dtype))
