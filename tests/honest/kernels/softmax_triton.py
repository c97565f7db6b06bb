"""honest: Triton, a program a row, with strides and masks
ops: torch.nn.functional.softmax
packs: f32 f16 even tiny
also: interpret
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rows(x, out, width, x_row, x_column, BLOCK: tl.constexpr):  # noqa: N803 - Triton's way to write constants
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * x_row + column * x_column, mask=inside, other=float("-inf")).to(tl.float32)
    exponential = tl.exp(value - tl.max(value, axis=0))
    answer = exponential / tl.sum(exponential, axis=0)
    tl.store(out + row * width + column, answer.to(out.dtype.element_ty), mask=inside)


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
    out = torch.empty(rows.shape, dtype=x.dtype)
    width = rows.shape[1]
    _rows[(rows.shape[0],)](rows, out, width, *rows.stride(), BLOCK=triton.next_power_of_2(width))
    return out.view(x.movedim(dim, -1).shape).movedim(-1, dim)
