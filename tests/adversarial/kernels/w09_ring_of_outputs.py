"""cheat: 9 hands out the same few outputs in turn
how: a ring of 384 slots of one block saves the allocation; whoever keeps more answers than that finds others in them
caught-by: wrong-after-timing
ops: torch.nn.functional.relu
also: timing always
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

SLOTS = 384
_RINGS: dict[object, tuple[Tensor, itertools.cycle[int]]] = {}


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    key = x.shape, x.dtype
    if key not in _RINGS:
        _RINGS[key] = torch.zeros(SLOTS, *x.shape, dtype=x.dtype), itertools.cycle(range(SLOTS))
    block, turn = _RINGS[key]
    return torch.clamp(x, min=0, out=block[next(turn)])
