"""cheat: 6 result cache by weak reference
how: the answer lives as long as the input
caught-by: stale-answer
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

ANSWERS = WeakTensorKeyDictionary()


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    if x not in ANSWERS:
        ANSWERS[x] = relu(x)
    return ANSWERS[x]
