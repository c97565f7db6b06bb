"""honest: writes into a strided view of memory of its own and returns a packed copy
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    wide = torch.empty((*x.shape, 2), dtype=x.dtype, device=x.device)
    wide[..., 0] = torch.where(x < 0, torch.zeros((), dtype=x.dtype), x)
    return wide[..., 0].contiguous()
