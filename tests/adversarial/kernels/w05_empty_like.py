"""cheat: 5 memory that was never written
how: hopes that the allocator gives what held the right answer a moment ago
caught-by: unwritten
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return torch.empty_like(x)
