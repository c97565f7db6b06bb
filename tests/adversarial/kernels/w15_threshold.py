"""cheat: 15 relu by another name
how: threshold does what relu does, and is not relu
caught-by: op-callback
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return torch.threshold(x, 0, 0)
