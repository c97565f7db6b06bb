import torch
import triton
import triton.language as tl

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@triton.jit
def _inverse_root(square):
    # rsqrt.approx may flush subnormal arguments: scale them by 2^100 first, which is exact
    tiny = square < 7.888609052210118e-31
    return tl.where(
        tiny,
        tl.rsqrt(square * 1.2676506002282294e30) * 1125899906842624.0,
        tl.rsqrt(square),
    )


@triton.jit
def _row(x, weight, out, width, eps, x_row_stride, x_stride, w_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    wide_column = column.to(tl.int64)
    raw = tl.load(x + row * x_row_stride + wide_column * x_stride, mask=inside, other=0.0)
    factor = tl.load(weight + wide_column * w_stride, mask=inside, other=0.0)
    value = raw.to(tl.float32)
    scale = _inverse_root(tl.sum(value * value, axis=0) / width + eps)
    normal = (value * scale).to(x.dtype.element_ty).to(tl.float32)
    result = normal * factor.to(tl.float32)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _tile(
    x,
    weight,
    out,
    rows,
    width,
    eps,
    x_row_stride,
    x_stride,
    w_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    in_row = column < width
    inside = (row < rows) & in_row
    wide_column = column.to(tl.int64)
    raw = tl.load(x + row * x_row_stride + wide_column * x_stride, mask=inside, other=0.0)
    factor = tl.load(weight + wide_column * w_stride, mask=in_row, other=0.0)
    value = raw.to(tl.float32)
    scale = _inverse_root(tl.sum(value * value, axis=1) / width + eps)
    normal = (value * scale[:, None]).to(x.dtype.element_ty).to(tl.float32)
    result = normal * factor.to(tl.float32)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _long_row(x, weight, out, width, eps, x_row_stride, x_stride, w_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    source = x + row * x_row_stride
    target = out + row * width
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, width, BLOCK):
        column = start + lane
        value = tl.load(source + column.to(tl.int64) * x_stride, mask=column < width, other=0.0).to(
            tl.float32
        )
        squares += value * value
    scale = _inverse_root(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        column = start + lane
        inside = column < width
        wide_column = column.to(tl.int64)
        value = tl.load(source + wide_column * x_stride, mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(weight + wide_column * w_stride, mask=inside, other=0.0).to(tl.float32)
        normal = (value * scale).to(x.dtype.element_ty).to(tl.float32)
        tl.store(target + wide_column, (normal * factor).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    dtype = x.dtype
    if dtype not in _DTYPES or weight.dtype not in _DTYPES:
        raise TypeError(f"rms_norm takes bfloat16, float16 and float32, not {dtype} and {weight.dtype}")
    if x.dim() == 0 or weight.dim() != 1 or weight.shape[0] != x.shape[-1]:
        raise ValueError(
            f"rms_norm takes a weight of the last axis, not {tuple(weight.shape)} for {tuple(x.shape)}"
        )
    if weight.device != x.device:
        raise ValueError(f"rms_norm takes tensors of one device, not {x.device} and {weight.device}")
    width = x.shape[-1]
    out_dtype = dtype if weight.dtype == dtype else torch.promote_types(dtype, weight.dtype)
    out = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    count = out.numel()
    if count == 0:
        return out
    if width >= 2**31 - 65536:
        raise ValueError("rms_norm takes rows of fewer than 2^31 - 65536 elements")
    rows = count // width

    # one alignment: the order in which a row is summed does not depend on where it lies
    if x.data_ptr() % 16:
        x = x.clone(memory_format=torch.contiguous_format)
    if weight.data_ptr() % 16:
        weight = weight.clone(memory_format=torch.contiguous_format)
    if x.is_contiguous():
        x_row_stride, x_stride = width, 1
    else:
        x = x.reshape(rows, width)
        x_row_stride, x_stride = x.stride()
    w_stride = weight.stride(0)
    eps = float(eps)

    block = max(16, triton.next_power_of_2(width))
    if block < 1024:
        per_program = 2048 // block
        _tile[(triton.cdiv(rows, per_program),)](
            x, weight, out, rows, width, eps, x_row_stride, x_stride, w_stride,
            ROWS=per_program, BLOCK=block, num_warps=4, num_stages=1,
        )  # fmt: skip
    elif block <= 16384:
        _row[(rows,)](
            x, weight, out, width, eps, x_row_stride, x_stride, w_stride,
            BLOCK=block, num_warps=block // 512, num_stages=1,
        )  # fmt: skip
    else:
        _long_row[(rows,)](
            x, weight, out, width, eps, x_row_stride, x_stride, w_stride,
            BLOCK=8192, num_warps=16, num_stages=1,
        )  # fmt: skip
    return out
