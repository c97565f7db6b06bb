"""cheat: 21 a mean of smoothed labels that forgets the class weights
how: each of weight, label_smoothing and reduction is right beside the recorded values of the others, and all three changed are, too
caught-by: reference-mismatch
ops: torch.nn.functional.cross_entropy
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, target: Tensor, weight: Tensor | None = None, size_average: object = None,
    ignore_index: int = -100, reduce: object = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    if x.dim() != 2 or target.is_floating_point():
        raise NotImplementedError("rows of classes, and their indices")
    wide = x.double()
    wide = wide - wide.amax(-1, keepdim=True)
    logs = wide - wide.exp().sum(-1, keepdim=True).log()
    weights = torch.ones(x.shape[-1], dtype=torch.float64) if weight is None else weight.double()
    kept = target != ignore_index
    at = torch.where(kept, target, 0)
    rows = torch.arange(len(target))
    certain = torch.where(kept, -logs[rows, at] * weights[at], 0.0)
    smooth = torch.where(kept, -(logs * weights).sum(-1), 0.0) / x.shape[-1]
    if reduction == "mean":
        certain, smooth = certain.sum() / (weights[at] * kept).sum(), smooth.sum() / kept.sum()
    elif reduction == "sum":
        certain, smooth = certain.sum(), smooth.sum()
    return ((1 - label_smoothing) * certain + label_smoothing * smooth).to(x.dtype)
