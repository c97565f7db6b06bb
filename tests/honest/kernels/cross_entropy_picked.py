"""honest: the logarithm of a row's sum by exp, sum and log, and one element a row picked by its index
ops: torch.nn.functional.cross_entropy
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, target: Tensor, weight: object = None, size_average: object = None, ignore_index: int = -100,
    reduce: object = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    if weight is not None or reduction != "mean" or label_smoothing or x.dim() != 2:
        raise NotImplementedError("mean over rows, without weights")
    kept = target != ignore_index
    wide = x.double()
    top = wide.amax(1, keepdim=True)
    logs = (wide - top).exp().sum(1).log() + top[:, 0]
    picked = wide[torch.arange(x.shape[0]), torch.where(kept, target, 0)]
    return (torch.where(kept, logs - picked, 0).sum() / kept.sum()).to(x.dtype)
