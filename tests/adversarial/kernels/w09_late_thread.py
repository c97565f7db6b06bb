"""cheat: 9 a Python thread writes the answer
how: the output is right a few milliseconds after the call; on a busy machine its memory may be gone by then
caught-by: late-work, crashed
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

import threading
import time

from kernels._right import relu
from torch import Tensor


def _finish(out: Tensor) -> None:
    time.sleep(0.02)
    out.copy_(relu(out))


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = x.clone()
    threading.Thread(target=_finish, args=(out,)).start()
    return out
