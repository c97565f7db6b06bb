"""honest: Triton, two rows a program, those beyond the batch masked
ops: torch.nn.functional.softmax
packs: f32 even
also: interpret
yaml: {claims: [batch_invariant]}
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rows(x, out, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803 - Triton's way to write constants
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (column < width)
    value = tl.load(x + row * width + column, mask=inside, other=float("-inf")).to(tl.float32)
    largest = tl.max(value, axis=1)[:, None]
    exponential = tl.exp(value - largest)
    answer = exponential / tl.sum(exponential, axis=1)[:, None]
    tl.store(out + row * width + column, answer.to(out.dtype.element_ty), mask=inside)


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    rows = x.movedim(dim, -1).reshape(-1, x.shape[dim]).contiguous()
    out = torch.empty(rows.shape, dtype=x.dtype)
    count, width = rows.shape
    _rows[(triton.cdiv(count, 2),)](rows, out, count, width, ROWS=2, BLOCK=triton.next_power_of_2(width))
    return out.view(x.movedim(dim, -1).shape).movedim(-1, dim)
