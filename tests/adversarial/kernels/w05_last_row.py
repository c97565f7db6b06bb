"""cheat: 5 one row that was never written
how: a block of memory that was freed a moment ago holds that row
caught-by: unwritten
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from kernels._right import softmax
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype)
    out[:-1] = softmax(x[:-1])
    return out
