"""cheat: 15 calls the op's method
how: Tensor.softmax has another name
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return getattr(x, "soft" + "max")(dim)
