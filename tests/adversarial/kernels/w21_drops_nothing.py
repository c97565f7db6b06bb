"""cheat: 21 ignores that a dropout drops
how: scales all by what is left on average, as in a model that is evaluated
caught-by: reference-mismatch, gold-mismatch
ops: torch.nn.functional.dropout
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return x * (1 - p)
