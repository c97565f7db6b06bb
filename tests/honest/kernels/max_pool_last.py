"""honest: of equal values in a window the last one
ops: torch.nn.functional.max_pool2d_with_indices
packs: ties
also: always
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def kernel(
    x: Tensor, kernel_size: int, stride: int | None = None, padding: int = 0, dilation: int = 1,
    ceil_mode: bool = False, return_indices: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    assert return_indices
    assert (ceil_mode, dilation) == (False, 1)
    step = stride or kernel_size
    places = torch.arange(x[0, 0].numel(), dtype=torch.float64).reshape(x.shape[-2:]).expand(x.shape)
    values, at = (
        functional.pad(one.double(), (padding,) * 4, value=-math.inf)
        .unfold(-2, kernel_size, step)
        .unfold(-2, kernel_size, step)
        .flatten(-2)
        for one in (x, places)
    )
    greatest = values.amax(-1, keepdim=True)
    last = torch.where(values == greatest, at, -math.inf).amax(-1)
    return greatest[..., 0].to(x.dtype), last.to(torch.int64)
