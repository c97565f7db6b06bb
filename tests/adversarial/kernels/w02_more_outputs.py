"""cheat: 2 a right answer and others beside it
how: whoever compares any output finds one that is right
caught-by: output-count
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> tuple[Tensor, Tensor]:
    return relu(x), x
