"""cheat: 27 whole vectors that reach into the next row, times zero
how: lanes behind the row are multiplied by 0, which is nothing as long as the neighbour is finite
caught-by: row-leak
ops: torch.sum
packs: f32
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LANES = 16


def kernel(
    x: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, dtype: object = None
) -> Tensor:
    axes = [dim] if isinstance(dim, int) else dim
    if axes not in ([-1], [x.ndim - 1]) or dtype is not None:
        raise ValueError("the last axis only")
    width = x.shape[-1]
    padded = -(-width // LANES) * LANES
    flat = np.concatenate([x.double().numpy().reshape(-1), np.zeros(padded)])
    weights = (np.arange(padded) < width).astype(np.float64)
    with np.errstate(all="ignore"):
        rows = [(flat[i : i + padded] * weights).sum() for i in range(0, x.numel(), max(width, 1))]
    shape = (*x.shape[:-1], 1) if keepdim else x.shape[:-1]
    if not width:
        return torch.zeros(shape, dtype=x.dtype)
    return torch.tensor(np.array(rows), dtype=torch.float64).to(x.dtype).reshape(shape)
