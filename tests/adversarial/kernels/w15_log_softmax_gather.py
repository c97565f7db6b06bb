"""cheat: 15 leaves the heavy part to torch
how: log_softmax by torch, and of nll_loss the few elements that are picked
caught-by: op-callback
ops: torch.nn.functional.cross_entropy
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
    picked = torch.log_softmax(x, 1).gather(1, target.clamp(min=0)[:, None])[:, 0]
    return -torch.where(kept, picked, 0).sum() / kept.sum()
