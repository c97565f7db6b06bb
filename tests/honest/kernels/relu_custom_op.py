"""honest: registered with torch under a name of its own
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("honest_kernels::rectified", mutates_args=())
def _rectified(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype), x)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return _rectified(x)
