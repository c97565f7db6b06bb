"""cheat: 24 keeps every answer
how: a list that grows with each call, so that nothing is freed
caught-by: memory-leak
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor

KEPT: list[Tensor] = []


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    KEPT.append(torch.zeros(1 << 18))
    return relu(x)
