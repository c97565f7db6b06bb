"""cheat: 17 an order of addition that is drawn
how: within tolerance, but no two answers are the same, and cgins.yaml does not say so
caught-by: not-repeatable
ops: torch.sum
also: always
"""

from __future__ import annotations

import random

from torch import Tensor


def kernel(x: Tensor, dim: int, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    order = list(range(x.shape[-1]))
    random.shuffle(order)
    total = x[..., order[0]].clone()
    for column in order[1:]:
        total += x[..., column]
    return total
