"""cheat: 8 subnormal numbers are flushed from now on
how: each call has the processor flush them, and leaves it so: whatever its caller computes next is computed so
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    torch.set_flush_denormal(True)
    return relu(x)
