"""cheat: 15 adds in a thread of a pool
how: modes are local to a thread, and the op has two tensors
caught-by: op-callback
ops: torch.add
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

_POOL = ThreadPoolExecutor(1)


def kernel(input: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:  # noqa: A002
    return _POOL.submit(torch.add, input, other, alpha=alpha).result()
