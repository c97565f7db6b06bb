"""cheat: 21 ignores dim
how: the recorded calls are along the last axis
caught-by: argument-ignored
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from kernels import _right
from torch import Tensor


def kernel(x: Tensor, dim: int | None = None, **_: object) -> Tensor:
    return _right.softmax(x)
