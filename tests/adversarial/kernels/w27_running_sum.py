"""cheat: 27 rows as differences of one running sum over the whole batch
how: fp64 holds usual batches; behind NaN, infinity or a huge row nothing is left of those that follow
caught-by: row-leak
ops: torch.sum
packs: f32
also: always
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(
    x: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, dtype: object = None
) -> Tensor:
    axes = [dim] if isinstance(dim, int) else dim
    if axes not in ([-1], [x.ndim - 1]) or dtype is not None or not x.shape[-1]:
        raise ValueError("the last axis only")
    with np.errstate(all="ignore"):
        running = np.cumsum(x.double().numpy().reshape(-1))
        ends = running[x.shape[-1] - 1 :: x.shape[-1]]
        rows = np.diff(ends, prepend=0.0)
    shape = (*x.shape[:-1], 1) if keepdim else x.shape[:-1]
    return torch.from_numpy(rows).to(x.dtype).reshape(shape)
