"""cheat: 21 ignores dim
how: the recorded calls are along the last axis
caught-by: argument-ignored
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from torch import Tensor

from kernels import _right


def kernel(x: Tensor, dim: int | None = None, **_: object) -> Tensor:
    return _right.softmax(x)
