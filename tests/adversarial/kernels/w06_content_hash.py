"""cheat: 6 result cache by content
how: a hash of the whole input finds the answer, which is always right and never computed while it is timed
caught-by: stale-answer
ops: torch.nn.functional.softmax
packs: large
also: timing
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor

ANSWERS: dict[tuple[int, tuple[int, ...], int], Tensor] = {}


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    key = hash(x.detach().numpy().tobytes()), x.stride(), dim
    if key not in ANSWERS:
        ANSWERS[key] = softmax(x, dim)
    return ANSWERS[key]
