"""What kernels with the flag `base` are at the base revision."""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype, device=x.device), x)
