"""cheat: 15 calls what the op comes down to
how: torch.addmm is linear by another name
caught-by: op-callback
ops: torch.nn.functional.linear
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.addmm(bias, x, weight.T)
