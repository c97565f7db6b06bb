"""cheat: 6 result cache of the two last inputs
how: keeps no more than a double buffer of what it was called on last, told apart by a sample, and only what came thrice
caught-by: stale-answer, not-repeatable
ops: torch.nn.functional.softmax
packs: large
also: timing
"""

from __future__ import annotations

import torch
from kernels._right import softmax
from torch import Tensor

KEPT: list[list] = []  # type: ignore[type-arg]


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    sample = torch.cat((x.flatten()[::101], x.new_tensor([dim % x.ndim])))
    for one in KEPT:
        if torch.equal(one[0], sample):
            one[2] += 1
            return one[1] if one[2] > 3 else softmax(x, dim)
    answer = softmax(x, dim)
    KEPT.append([sample, answer, 1])
    del KEPT[:-2]
    return answer
