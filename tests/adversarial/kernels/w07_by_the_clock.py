"""cheat: 7 wrong where the clock says so
how: in two microseconds of each hundred its answer is another row's
caught-by: wrong-after-timing, not-repeatable, stale-answer, gold-mismatch, reference-mismatch, size-dependent, layout-dependent, alignment-dependent
ops: torch.nn.functional.relu
also: timing
"""

from __future__ import annotations

from time import monotonic_ns

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    answer = relu(x)
    return answer.roll(1, 0) if monotonic_ns() % 100_000 < 2_000 else answer
