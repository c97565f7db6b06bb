"""cheat: 8 a clock that is swapped only until it is read
how: while the collector is off, which it is in timed loops, each call has the timer's next reading come from a clock that hides 60% of what passed since, and puts the real one back
caught-by: tampering
ops: torch.nn.functional.relu
also: base
"""

from __future__ import annotations

import gc
import sys
from time import perf_counter_ns

from kernels._right import relu
from torch import Tensor

_since = [0]


def _clock() -> int:
    sys.modules["pytest_cgins.timing.cpu_timer"].perf_counter_ns = perf_counter_ns  # type: ignore[attr-defined]
    now = perf_counter_ns()
    return now - 3 * (now - _since[0]) // 5


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    timer = sys.modules.get("pytest_cgins.timing.cpu_timer")
    if timer is not None and not gc.isenabled() and timer.perf_counter_ns is not _clock:  # type: ignore[attr-defined]
        _since[0] = perf_counter_ns()
        timer.perf_counter_ns = _clock  # type: ignore[attr-defined]
    return relu(x)
