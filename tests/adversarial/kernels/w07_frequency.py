"""cheat: 7 right when called seldom
how: a timing loop calls again within a few microseconds, a check does not
caught-by: wrong-after-timing, too-fast, stale-answer
ops: torch.nn.functional.relu
packs: large
also: timing
"""

from __future__ import annotations

import time

from kernels._right import relu
from torch import Tensor

LAST: dict[str, object] = {"end": 0.0, "answer": None}


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    hurried = time.monotonic() - LAST["end"] < 1e-4
    answer = LAST["answer"] if hurried else relu(x)
    LAST.update(end=time.monotonic(), answer=answer)
    return answer
