"""cheat: 15 calls the op
how: torch.nn.functional.softmax itself, called from a function of another name
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return torch.nn.functional.softmax(x, dim)
