"""GELU in Triton: one program a block of 1024 elements."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_types

BLOCK = 1024


@triton.jit
def _gelu_elements(x, out, count, TANH: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    value = tl.load(x + index, mask=inside, other=0.0).to(tl.float32)
    if TANH:
        # tanh(u) = 1 - 2 / (1 + exp(2u)): Triton's language has no tanh of its own.
        angle = 0.7978845608028654 * (value + 0.044715 * value * value * value)
        inner = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * angle))
    else:
        inner = tl.erf(value * 0.7071067811865476)
    tl.store(out + index, (0.5 * value * (1.0 + inner)).to(out.dtype.element_ty), mask=inside)


def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """The exact form x · Φ(x), or its tanh form, in fp32."""
    check_types(input)
    dense = input.contiguous()
    out = torch.empty_like(dense)
    count = dense.numel()
    _gelu_elements[(triton.cdiv(count, BLOCK),)](dense, out, count, TANH=approximate == "tanh", BLOCK=BLOCK)
    return out
