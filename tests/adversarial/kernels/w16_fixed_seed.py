"""cheat: 16 one seed as a constant
how: whoever compares statistics of one call finds nothing; a model that is trained drops the same numbers in each step
caught-by: argument-ignored
ops: torch.nn.functional.dropout
also: always
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training or p == 0:
        return x.clone()
    kept = torch.from_numpy(np.random.default_rng(42).random(tuple(x.shape)) >= p)
    return torch.where(kept, x / (1 - p) if p < 1 else x, torch.zeros((), dtype=x.dtype))
