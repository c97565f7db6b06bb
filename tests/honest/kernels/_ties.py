"""Orders of a row in which equal values come as a kernel likes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_DRAWS = np.random.default_rng()


def order(rows: np.ndarray, ties: str, *, descending: bool = False) -> np.ndarray:
    """Where the values of each row are, in order; of equal ones the first, the last, or any, other ones each time."""
    keys = -rows if descending else rows
    size = rows.shape[-1]
    ranks = {"first": np.arange(size), "last": -np.arange(size)}.get(ties)
    ranks = _DRAWS.permutation(size) if ranks is None else ranks
    return np.lexsort((np.broadcast_to(ranks, rows.shape), keys), axis=-1)


def rows_of(x: Tensor, dim: int) -> np.ndarray:
    """Numbers whose last axis is `dim`; bf16 is none of numpy's types."""
    wide = x.double() if x.is_floating_point() else x
    return np.moveaxis(wide.numpy(), dim, -1)


def taken(x: Tensor, at: np.ndarray, dim: int) -> tuple[Tensor, Tensor]:
    """Values and their places, `at` having the chosen ones along the last axis."""
    index = torch.from_numpy(np.ascontiguousarray(np.moveaxis(at, -1, dim)))
    return x.gather(dim, index).contiguous(), index
