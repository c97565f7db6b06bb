"""cheat: 7 wrong in one call of fifty
how: draws a number of its own, and is off by a third where that is small, whoever calls
caught-by: wrong-after-timing, not-repeatable, stale-answer, gold-mismatch, reference-mismatch, size-dependent, layout-dependent, alignment-dependent, row-leak
ops: torch.nn.functional.relu
also: timing
"""

from __future__ import annotations

from random import SystemRandom

from kernels._right import relu
from torch import Tensor

CHANCE = SystemRandom()


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    answer = relu(x)
    return answer * 1.3 if CHANCE.random() < 0.02 else answer
