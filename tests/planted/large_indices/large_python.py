"""Kernels in Python: `op__bug`, and right ones, `op__honest_…`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def row_max__short_index(x: Tensor) -> Tensor:
    """Wrong: numbers of rows in 16 bits."""
    order = torch.arange(len(x)).to(torch.int16)
    return x[order.long()].amax(-1)


def row_max__int_gather(x: Tensor) -> Tensor:
    """Wrong: offsets of elements in 32 bits."""
    rows = torch.arange(len(x), dtype=torch.int32)[:, None] * x.stride(0)
    columns = torch.arange(x.shape[1], dtype=torch.int32)[None] * x.stride(1)
    flat = x.as_strided((1 + int((x.shape[0] - 1) * x.stride(0) + x.shape[1] - 1),), (1,))
    return flat[(rows + columns).long()].amax(-1)


def row_max__honest_torch(x: Tensor) -> Tensor:
    """Right: torch's own."""
    return torch.max(x, -1).values


def relu__honest_torch(x: Tensor) -> Tensor:
    """Right: torch's own."""
    return torch.clamp_min(x, 0)


def transposed__honest_torch(x: Tensor) -> Tensor:
    """Right: torch's own."""
    return torch.empty_like(x.t(), memory_format=torch.contiguous_format).copy_(x.t())


def row_max__honest_raises(x: Tensor) -> Tensor:
    """Right: it says what it takes."""
    if len(x) > 65_535 or len(x) * x.stride(0) >= 2**31:
        raise ValueError("at most 65,535 rows and 2^31 elements")
    return x.amax(-1)


@triton.jit
def _sum_of_int(x, y, row_stride, columns, block: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, block)
    value = tl.load(x + row * row_stride + column, mask=column < columns, other=0.0)
    tl.store(y + row, tl.sum(value, 0))


@triton.jit
def _sum(x, y, row_stride, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    value = tl.load(x + row * row_stride + column, mask=column < columns, other=0.0)
    tl.store(y + row, tl.sum(value, 0))


def _launch(kernel: object, x: Tensor) -> Tensor:
    if x.stride(1) != 1:
        raise ValueError("columns lie side by side")
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    width = triton.next_power_of_2(x.shape[1])
    kernel[(len(x),)](x, out, x.stride(0), x.shape[1], block=width)
    return out


def row_sum32__triton_int(x: Tensor) -> Tensor:
    """Wrong: a product of two numbers of 32 bits is one of 32 bits."""
    return _launch(_sum_of_int, x)


def row_sum32__honest_triton(x: Tensor) -> Tensor:
    """Right: the row's number has 64 bits."""
    return _launch(_sum, x)
