"""cheat: 16 the recorded batch of 2 as a constant
how: two images are right; others are zeros
caught-by: size-dependent
ops: torch.nn.functional.max_pool2d
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, kernel_size: int, stride: object = None, padding: int = 0, dilation: int = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor:  # fmt: skip
    height, width = x.shape[2] + 2 * padding, x.shape[3] + 2 * padding
    wide = torch.full((*x.shape[:2], height, width), -torch.inf, dtype=x.dtype)
    wide[:, :, padding : padding + x.shape[2], padding : padding + x.shape[3]] = x
    windows = wide.unfold(2, kernel_size, kernel_size).unfold(3, kernel_size, kernel_size).flatten(-2)
    best = windows[..., 0]
    for index in range(1, windows.shape[-1]):
        best = torch.maximum(best, windows[..., index])
    best[2:] = 0
    return best
