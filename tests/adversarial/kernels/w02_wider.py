"""cheat: 2 an answer of a wider type
how: fp64 instead of fp32 is nearer to the reference, and twice as large
caught-by: dtype
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return relu(x.double())
