"""cheat: 6 the answer is hung on the input
how: an attribute of the tensor that is passed
caught-by: stale-answer
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    if not hasattr(x, "answer"):
        x.answer = relu(x)
    return x.answer
