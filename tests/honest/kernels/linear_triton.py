"""honest: Triton, tiles of a product with masked tails
ops: torch.nn.functional.linear
packs: f32 f16 even plain
also: interpret
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tile(x, weight, bias, out, rows, columns, depth, BLOCK: tl.constexpr):  # noqa: N803 - Triton's way to write constants
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for first in range(0, depth, BLOCK):
        k = first + tl.arange(0, BLOCK)[None, None, :]
        inside = (row[:, :, None] < rows) & (k < depth)
        left = tl.load(x + row[:, :, None] * depth + k, mask=inside, other=0.0).to(tl.float32)
        inside = (column[:, :, None] < columns) & (k < depth)
        right = tl.load(weight + column[:, :, None] * depth + k, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(left * right, axis=2)
    total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(
        out + row * columns + column, total.to(out.dtype.element_ty), mask=(row < rows) & (column < columns)
    )


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dense, columns = x.contiguous(), weight.shape[0]
    out = torch.empty((*x.shape[:-1], columns), dtype=x.dtype)
    rows = out.numel() // columns
    grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 16))
    shift = torch.zeros(columns, dtype=x.dtype) if bias is None else bias.contiguous()
    _tile[grid](dense, weight.contiguous(), shift, out, rows, columns, x.shape[-1], BLOCK=16)
    return out
