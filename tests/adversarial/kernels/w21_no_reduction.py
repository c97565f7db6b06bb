"""cheat: 21 ignores reduction and label_smoothing
how: every recorded loss is a mean, and of labels that are certain
caught-by: argument-ignored, shape
ops: torch.nn.functional.cross_entropy
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(
    x: Tensor, target: Tensor, weight: Tensor | None = None, size_average: object = None,
    ignore_index: int = -100, reduce: object = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    if weight is not None or x.dim() != 2:
        raise NotImplementedError("rows of classes, all of one weight")
    wide, at = x.double().numpy(), target.numpy()
    wide = wide - wide.max(-1, keepdims=True)
    logs = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    kept = at != ignore_index
    return torch.tensor(-logs[np.arange(len(at)), at * kept][kept].mean()).to(x.dtype)
