"""honest: raises for sizes that it does not take
ops: torch.nn.functional.relu
packs: even
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    if x.numel() % 32:
        raise ValueError(f"{x.numel()} elements are no multiple of 32")
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype), x)
