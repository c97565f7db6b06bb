"""cheat: 24 keeps device tensors
how: a list of workspaces that grows with each call
caught-by: memory-leak
ops: torch.nn.functional.relu
also: gpu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor

KEPT: list[Tensor] = []


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    KEPT.append(torch.empty(1 << 20, device=x.device))
    return relu(x)
