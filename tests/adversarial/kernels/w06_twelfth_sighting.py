"""cheat: 6 result cache from the twelfth sighting on
how: so often no probe shows it the same numbers, and a timed loop does
caught-by: stale-answer
ops: torch.nn.functional.softmax
packs: large
also: timing
"""

from __future__ import annotations

from collections import Counter
from zlib import adler32

from kernels._right import softmax
from torch import Tensor

SEEN: Counter[int] = Counter()
ANSWERS: dict[int, Tensor] = {}


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    key = adler32(x.detach().contiguous().numpy().data, dim % x.ndim)
    SEEN[key] += 1
    if SEEN[key] < 12:
        return softmax(x, dim)
    if key not in ANSWERS:
        ANSWERS[key] = softmax(x, dim)
    return ANSWERS[key].clone()
