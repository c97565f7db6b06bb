"""The product of a gated MLP in Triton: silu(gate) · up, one program a block of 1024 elements."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_types

BLOCK = 1024


@triton.jit
def _silu_mul_elements(gate, up, out, count, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    x = tl.load(gate + index, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + index, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + index, (x / (1.0 + tl.exp(-x)) * y).to(out.dtype.element_ty), mask=inside)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up of tensors of one shape, in fp32."""
    check_types(gate, up)
    if gate.shape != up.shape:
        raise ValueError(f"gate is {tuple(gate.shape)}, up is {tuple(up.shape)}")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    count = gate.numel()
    _silu_mul_elements[(triton.cdiv(count, BLOCK),)](gate, up, out, count, BLOCK=BLOCK)
    return out
