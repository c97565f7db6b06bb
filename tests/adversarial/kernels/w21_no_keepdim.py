"""cheat: 21 ignores keepdim
how: no recorded sum keeps its axis
caught-by: argument-ignored, shape
ops: torch.sum
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def kernel(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    axes = tuple(range(x.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return torch.from_numpy(x.double().numpy().sum(axes, keepdims=False)).to(dtype or x.dtype)
