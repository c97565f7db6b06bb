"""cheat: 6 result cache by data_ptr
how: a dict from data_ptr to the answer
caught-by: stale-answer
ops: torch.nn.functional.softmax
also: always
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor

ANSWERS: dict[int, Tensor] = {}


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if x.data_ptr() not in ANSWERS:
        ANSWERS[x.data_ptr()] = softmax(x, dim)
    return ANSWERS[x.data_ptr()].clone()
