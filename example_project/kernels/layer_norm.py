"""Layer norm in Triton: one program a row, the row held in registers."""

import math

import torch
import triton
import triton.language as tl

from kernels.checks import check_types


@triton.jit
def _layer_norm_rows(
    x, weight, bias, out, width, eps,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / width
    centered = tl.where(inside, value - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / width
    result = centered / tl.sqrt(variance + eps)
    if HAS_WEIGHT:
        result *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        result += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + start + column, result.to(out.dtype.element_ty), mask=inside)


def layer_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Norm over the last `len(normalized_shape)` axes; mean and variance are taken in fp32."""
    check_types(input, weight, bias)
    width = math.prod(normalized_shape)
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    _layer_norm_rows[(input.numel() // width,)](
        input.contiguous(),
        None if weight is None else weight.contiguous(),
        None if bias is None else bias.contiguous(),
        out,
        width,
        eps,
        HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None,
        BLOCK=triton.next_power_of_2(width),
    )
    return out
