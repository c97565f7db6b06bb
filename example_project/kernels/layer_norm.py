"""Layer norm in Triton: one program a row, the row held in registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def _layer_norm_rows(
    x, weight, bias, out, width, x_row_stride, eps,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * x_row_stride + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / width
    centered = tl.where(inside, value - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / width
    result = centered / tl.sqrt(variance + eps)
    if HAS_WEIGHT:
        result *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        result += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


def layer_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Norm over the last `len(normalized_shape)` axes; mean and variance are taken in fp32."""
    width = input[(0,) * (input.ndim - len(normalized_shape))].numel()
    rows = input.reshape(-1, width)
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    _layer_norm_rows[(rows.shape[0],)](
        rows,
        weight,
        bias,
        out,
        width,
        rows.stride(0),
        eps,
        HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None,
        BLOCK=triton.next_power_of_2(width),
    )
    return out
