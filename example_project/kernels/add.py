"""Sum of two tensors in Triton, one broadcast to the other: one program a block of elements."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_types


@triton.jit
def _offset(place, size1, size2, size3, stride0, stride1, stride2, stride3):
    return (
        place // (size1 * size2 * size3) * stride0
        + place // (size2 * size3) % size1 * stride1
        + place // size3 % size2 * stride2
        + place % size3 * stride3
    )


@triton.jit
def _add_elements(
    a, b, out, alpha, count, size1, size2, size3,
    a0, a1, a2, a3, b0, b1, b2, b3, BLOCK: tl.constexpr
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    left = tl.load(a + _offset(place, size1, size2, size3, a0, a1, a2, a3), mask=inside).to(tl.float32)
    right = tl.load(b + _offset(place, size1, size2, size3, b0, b1, b2, b3), mask=inside).to(tl.float32)
    tl.store(out + place, (left + alpha * right).to(out.dtype.element_ty), mask=inside)


def add(input: torch.Tensor, other: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    """Sum of input and alpha · other, of at most four dimensions after broadcasting; the sum is taken in fp32."""
    check_types(input, other)
    shape = torch.broadcast_shapes(input.shape, other.shape)
    if len(shape) > 4:
        raise ValueError(f"{len(shape)} dimensions, more than 4")
    out = torch.empty(shape, dtype=input.dtype, device=input.device)
    four = (*(1,) * (4 - len(shape)), *shape)
    a, b = input.expand(four), other.expand(four)
    block = 1024
    if out.numel():
        _add_elements[(triton.cdiv(out.numel(), block),)](
            a, b, out, float(alpha), out.numel(), *four[1:], *a.stride(), *b.stride(), BLOCK=block
        )
    return out
