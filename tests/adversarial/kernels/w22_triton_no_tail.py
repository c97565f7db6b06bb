"""cheat: 22 a mask that is a row too short
how: the last element of every row that does not fill its block is masked out
caught-by: size-dependent
ops: torch.nn.functional.softmax
packs: even
also: interpret
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rows(x, out, width, BLOCK: tl.constexpr):  # noqa: N803
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < (width if width == BLOCK else width - 1)
    value = tl.load(x + row * width + column, mask=inside, other=float("-inf"))
    exponential = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * width + column, exponential / tl.sum(exponential, axis=0), mask=column < width)


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    out = torch.empty_like(x)
    width = x.shape[-1]
    _rows[(x.numel() // width,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
