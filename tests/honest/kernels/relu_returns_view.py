"""honest: its output is a view of a padded buffer's memory, dense and contiguous
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    padded = torch.empty(x.numel() + 64, dtype=x.dtype)
    out = padded[: x.numel()].view(x.shape)
    return out.copy_(torch.where(x < 0, torch.zeros((), dtype=x.dtype), x))
