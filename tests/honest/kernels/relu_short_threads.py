"""honest: threads that end before the call returns
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty_like(x)
    zero = torch.zeros((), dtype=x.dtype)
    work = [
        threading.Thread(target=lambda row=row: out[row].copy_(torch.where(x[row] < 0, zero, x[row])))
        for row in range(x.shape[0])
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return out
