"""Right answers that the kernels of this folder fall back to where they are about something else."""

from __future__ import annotations

import torch
from torch import Tensor


def relu(x: Tensor) -> Tensor:
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype, device=x.device), x)


def softmax(x: Tensor) -> Tensor:
    """Over the last axis."""
    wide = x.float()
    exponential = (wide - wide.amax(-1, keepdim=True)).exp()
    return (exponential / exponential.sum(-1, keepdim=True)).to(x.dtype)
