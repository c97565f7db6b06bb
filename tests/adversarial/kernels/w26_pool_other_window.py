"""cheat: 26 the first equal value of the plane, in whichever window
how: it is the value of the pool, and its gradient goes to another one's place
caught-by: index-mismatch
ops: torch.nn.functional.max_pool2d_with_indices
packs: ties
also: always
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(
    x: Tensor, kernel_size: int, stride: int | None = None, padding: int = 0, dilation: int = 1,
    ceil_mode: bool = False, return_indices: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    step = stride or kernel_size
    wide = torch.nn.functional.pad(x, (padding,) * 4, value=-torch.inf)
    values = wide.unfold(-2, kernel_size, step).unfold(-2, kernel_size, step).flatten(-2).amax(-1)
    plane, pooled = x.flatten(-2), values.flatten(-2)
    places = torch.arange(plane.shape[-1])
    at = torch.where(plane[..., None, :] == pooled[..., None], places, plane.shape[-1]).amin(-1)
    return values.contiguous(), at.reshape(values.shape)
