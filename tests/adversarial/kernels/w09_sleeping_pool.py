"""cheat: 9 a pool of threads that began before the first call
how: threads that were there before are taken for torch's own
caught-by: late-work, gold-mismatch, reference-mismatch
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from kernels._right import relu
from torch import Tensor

_POOL = ThreadPoolExecutor(1)
_POOL.submit(int).result()


def _finish(out: Tensor) -> None:
    time.sleep(0.02)
    out.copy_(relu(out))


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = x.clone()
    _POOL.submit(_finish, out)
    return out
