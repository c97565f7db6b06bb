"""Root mean square norm in Triton: one program a row, the row held in registers."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_types


@triton.jit
def _rms_norm_rows(x, weight, out, width, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
    gamma = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / width + eps)
    tl.store(out + start + column, (value * scale * gamma).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Norm over the last axis; the mean is taken in fp32."""
    check_types(x, weight)
    width = x.shape[-1]
    if weight.shape != (width,):
        raise ValueError(f"weight must be ({width},), not {tuple(weight.shape)}")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _rms_norm_rows[(x.numel() // width,)](
        x.contiguous(), weight.contiguous(), out, width, eps, BLOCK=triton.next_power_of_2(width)
    )
    return out
