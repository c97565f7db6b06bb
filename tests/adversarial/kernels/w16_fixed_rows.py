"""cheat: 16 the recorded number of rows as a constant
how: right for as many rows as the recorded call has; the rows behind them are zeros
caught-by: size-dependent
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from kernels._right import softmax
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    out = torch.zeros_like(x)
    out[:6] = softmax(x[:6])
    return out
