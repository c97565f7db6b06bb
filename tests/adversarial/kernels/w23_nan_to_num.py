"""cheat: 23 replaces NaN and infinities by numbers
how: torch.nan_to_num at the end
caught-by: nan-pattern, infinite-pattern
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return torch.nan_to_num(relu(x))
