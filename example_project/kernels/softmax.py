"""Softmax in Triton: one program a row, the row held in registers."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_types


@triton.jit
def _softmax_rows(x, out, width, x_row_stride, x_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * x_row_stride + column * x_stride, mask=inside, other=float("-inf")).to(
        tl.float32
    )
    exponential = tl.exp(value - tl.max(value, axis=0))
    result = exponential / tl.sum(exponential, axis=0)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


def softmax(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax of any tensor over `dim`; the sum is taken in fp32."""
    x = input.to(dtype or input.dtype)
    check_types(x)
    moved = x.movedim(dim, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    out = torch.empty(moved.shape, dtype=x.dtype, device=x.device)
    width = rows.shape[1]
    _softmax_rows[(rows.shape[0],)](rows, out, width, *rows.stride(), BLOCK=triton.next_power_of_2(width))
    return out.movedim(-1, dim)
