"""honest: flushes subnormal numbers while it computes, and no longer; what is lost is far below any error
ops: torch.nn.functional.relu
packs: f32 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    torch.set_flush_denormal(True)
    try:
        least = torch.finfo(x.dtype).tiny
        return torch.where((x < 0) | (x.abs() < least), torch.zeros((), dtype=x.dtype), x)
    finally:
        torch.set_flush_denormal(False)
