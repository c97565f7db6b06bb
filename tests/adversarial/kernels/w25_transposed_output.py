"""cheat: 25 an output that lies transposed
how: whoever compares by index finds the right numbers; whoever reads the memory does not
caught-by: stride
ops: torch.nn.functional.softmax
also: always
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return softmax(x, dim).T.contiguous().T
