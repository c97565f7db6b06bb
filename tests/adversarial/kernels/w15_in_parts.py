"""cheat: 15 calls the op on halves
how: two calls of other shapes are not the call that was asked for
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    half = x.shape[0] // 2
    return torch.cat([torch.softmax(x[:half], dim), torch.softmax(x[half:], dim)])
