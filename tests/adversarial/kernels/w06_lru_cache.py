"""cheat: 6 functools.lru_cache
how: tensors are hashed by identity
caught-by: stale-answer
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import functools

from kernels._right import relu
from torch import Tensor


@functools.lru_cache(maxsize=64)
def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return relu(x)
