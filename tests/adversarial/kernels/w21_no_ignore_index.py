"""cheat: 21 ignores ignore_index
how: no recorded target is ignored
caught-by: reference-mismatch
ops: torch.nn.functional.cross_entropy
packs: plain
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, target: Tensor, weight: Tensor | None = None, size_average: object = None,
    ignore_index: int = -100, reduce: object = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    wide = x.double()
    wide = wide - wide.amax(-1, keepdim=True)
    logs = wide - wide.exp().sum(-1, keepdim=True).log()
    rows = torch.arange(len(target))
    return -logs[rows, target.clamp(min=0)].mean().to(x.dtype)
