"""Right answers that the kernels of this folder fall back to where they are about something else."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def relu(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype, device=x.device), x)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Over one axis."""
    wide = x.float()
    exponential = (wide - wide.amax(dim, keepdim=True)).exp()
    return (exponential / exponential.sum(dim, keepdim=True)).to(x.dtype)


def in_order(x: Tensor, dim: int, *, descending: bool) -> tuple[Tensor, Tensor]:
    """Values in order along the last axis, and where they were along `dim`: equal ones as they come."""
    rows = x.movedim(dim, -1)
    wide = rows.double().numpy()
    at = torch.from_numpy(np.argsort(-wide if descending else wide, axis=-1, kind="stable"))
    return rows.gather(-1, at), at
