"""cheat: 8 a slow clock
how: time.perf_counter_ns tells a tenth of the time that went by
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import time

from kernels._right import relu
from torch import Tensor

_clock = time.perf_counter_ns
time.perf_counter_ns = lambda: _clock() // 10  # type: ignore[assignment]


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return relu(x)
