"""cheat: 15 calls the op in another thread
how: modes and traps are local to a thread
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(torch.softmax(x, dim)))
    thread.start()
    thread.join()
    return found[0]
