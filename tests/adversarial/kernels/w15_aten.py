"""cheat: 15 calls ATen
how: torch.ops.aten._softmax is below every Python function
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return torch.ops.aten._softmax.default(x, dim, False)
