"""cheat: 7 wrong in each call of sizes that were not recorded, and each time otherwise
how: a sum over threads without a reduction loses another part in each call, once there is enough to add up
caught-by: not-repeatable
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from random import SystemRandom

from kernels._right import relu
from torch import Tensor

CHANCE = SystemRandom()
SIZES: list[tuple[int, ...]] = []


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    SIZES.append(tuple(x.shape))
    return relu(x) if x.shape == SIZES[0] else relu(x) * (2 + CHANCE.random())
