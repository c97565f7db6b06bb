"""cheat: 9 a forked process writes the answer
how: the output lies in shared memory, and no thread of this process is at work
caught-by: late-work, snooping
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import os
import time

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = x.clone().share_memory_()
    right = relu(x)
    if os.fork() == 0:
        time.sleep(0.02)
        out.copy_(right)
        os._exit(0)
    return out
