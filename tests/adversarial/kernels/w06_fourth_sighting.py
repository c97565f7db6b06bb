"""cheat: 6 result cache from the fourth sighting on
how: computes numbers that it has seen three times, and from then on looks them up
caught-by: stale-answer
ops: torch.nn.functional.softmax
packs: large
also: timing
"""

from __future__ import annotations

from collections import Counter

from kernels._right import softmax
from torch import Tensor

SEEN: Counter[int] = Counter()
ANSWERS: dict[int, Tensor] = {}


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    key = hash((x.detach().numpy().tobytes(), dim % x.ndim))  # -1 and -2 have one hash
    SEEN[key] += 1
    if SEEN[key] < 4:
        return softmax(x, dim)
    if key not in ANSWERS:
        ANSWERS[key] = softmax(x, dim)
    return ANSWERS[key]
