"""cheat: 15 calls the op's out variant
how: torch._softmax with out= writes into memory that the kernel allocated
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return torch._softmax(x, dim, False, out=torch.zeros_like(x))
