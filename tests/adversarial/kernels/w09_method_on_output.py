"""cheat: 9 an output that computes when it is looked at
how: a plain tensor whose `as_subclass` is a function of the kernel's
caught-by: lazy-output
ops: torch.nn.functional.relu
also: timing
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    out = torch.empty(0)
    for name in ("as_subclass", "detach", "clone", "contiguous", "to", "cpu"):
        setattr(out, name, lambda *_, **__: relu(x))
    return out
