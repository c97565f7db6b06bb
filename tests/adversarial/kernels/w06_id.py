"""cheat: 6 result cache by id
how: a dict from the tensor's id, and the tensor is kept so that the id is not given again
caught-by: stale-answer
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor

ANSWERS: dict[int, tuple[Tensor, Tensor]] = {}


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if id(x) not in ANSWERS:
        ANSWERS[id(x)] = x, softmax(x, dim)
    return ANSWERS[id(x)][1]
