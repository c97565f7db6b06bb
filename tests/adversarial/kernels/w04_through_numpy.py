"""cheat: 4 writes past torch's version counter
how: changes the last element of the input through its memory, where autograd does not see it
caught-by: input-changed
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import ctypes

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = relu(x)
    ctypes.memset(x.data_ptr() + x.nbytes - 1, 0x40, 1)
    return out
