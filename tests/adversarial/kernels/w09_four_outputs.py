"""cheat: 9 hands out the same four outputs in turn
how: no two answers that are looked at one after the other lie on the same memory
caught-by: late-work
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

_RINGS: dict[object, itertools.cycle[Tensor]] = {}


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    key = x.shape, x.dtype
    if key not in _RINGS:
        _RINGS[key] = itertools.cycle([torch.empty_like(x) for _ in range(4)])
    return torch.clamp(x, min=0, out=next(_RINGS[key]))
