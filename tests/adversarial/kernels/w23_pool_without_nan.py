"""cheat: 23 a maximum that passes over NaN
how: fmax gives the other operand
caught-by: nan-pattern
ops: torch.nn.functional.max_pool2d
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, kernel_size: int, stride: object = None, padding: int = 0, dilation: int = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor:  # fmt: skip
    if stride not in (None, kernel_size) or dilation != 1 or ceil_mode or return_indices:
        raise ValueError("windows that touch, without indices")
    wide = torch.full(
        (*x.shape[:2], x.shape[2] + 2 * padding, x.shape[3] + 2 * padding), -torch.inf, dtype=x.dtype
    )
    wide[:, :, padding : padding + x.shape[2], padding : padding + x.shape[3]] = x
    windows = wide.unfold(2, kernel_size, kernel_size).unfold(3, kernel_size, kernel_size).flatten(-2)
    best = windows[..., 0]
    for index in range(1, windows.shape[-1]):
        best = torch.fmax(best, windows[..., index])
    return best
