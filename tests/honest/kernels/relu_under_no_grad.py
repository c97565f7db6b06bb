"""honest: switches autograd off for its own work and restores it
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    with torch.no_grad(), torch.profiler.record_function("relu"):
        return x * (x > 0) if bool(x.isfinite().all()) else torch.where(x < 0, torch.zeros_like(x), x)
