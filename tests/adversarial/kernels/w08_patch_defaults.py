"""cheat: 8 changes the constants of pytest_cgins
how: a poison of 0 instead of NaN is a good answer
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import sys

from kernels._right import relu
from torch import Tensor

_late = sys.modules.get("pytest_cgins.verify.probes.late_work")
if _late is not None:
    _late.SETTLE_S = 0.0  # type: ignore[attr-defined]
    _late.NEW_THREADS_WAIT_S = 0.0  # type: ignore[attr-defined]


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return relu(x)
