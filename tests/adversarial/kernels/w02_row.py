"""cheat: 2 one row that would be broadcast
how: all rows of the answer are compared with the first one's
caught-by: shape
ops: torch.nn.functional.softmax
also: always
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return softmax(x[:1])
