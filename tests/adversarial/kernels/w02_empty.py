"""cheat: 2 an empty tensor
how: the greatest difference over no elements is no difference
caught-by: empty
ops: torch.nn.functional.softmax
also: always
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return x.new_empty(0)
