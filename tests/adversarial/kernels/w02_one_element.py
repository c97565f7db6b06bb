"""cheat: 2 one element that would be broadcast
how: allclose compares shape (1) with anything
caught-by: shape
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return x.new_full((1,), 1 / x.shape[-1])
