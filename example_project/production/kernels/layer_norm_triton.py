import torch
import triton
import triton.language as tl


@triton.jit
def _rows(
    x,
    weight,
    bias,
    out,
    rows,
    width,
    x_row_stride,
    eps,
    count,
    scale,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # A tile of whole rows; columns lie along the lanes. The tile stays in registers from the load to the store.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    within = column < width
    inside = (row < rows)[:, None] & within[None, :]
    value = tl.load(x + row[:, None] * x_row_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if weight is not None:  # asked for early: they arrive while the row is summed
        gamma = tl.load(weight + column, mask=within, other=0.0)
    if bias is not None:
        beta = tl.load(bias + column, mask=within, other=0.0)
    # scale is a power of two, at most 1/width: exact, and the sum of huge numbers does not overflow
    mean = tl.div_rn(tl.sum(value * scale, axis=1), count * scale)
    if x.dtype.element_ty == tl.float32:
        rest = tl.where(within[None, :], value - mean[:, None], 0.0)
        mean += tl.sum(rest * scale, axis=1) / (count * scale)
    centred = tl.where(within[None, :], value - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / count + eps)
    result = centred * rstd[:, None]
    if weight is not None:
        result = result * gamma.to(tl.float32)[None, :]
    if bias is not None:
        result = result + beta.to(tl.float32)[None, :]
    tl.store(out + row[:, None] * width + column[None, :], result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _affine(centred, rstd, weight, bias, column, within):
    result = centred * rstd[:, None]
    if weight is not None:
        result = result * tl.load(weight + column, mask=within, other=0.0).to(tl.float32)[None, :]
    if bias is not None:
        result = result + tl.load(bias + column, mask=within, other=0.0).to(tl.float32)[None, :]
    return result


@triton.jit
def _columns(
    x,
    weight,
    bias,
    out,
    inner,
    tiles,
    width,
    x_outer_stride,
    x_stride,
    eps,
    count,
    scale,
    ROWS: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
):
    # Rows of the input are neighbours in memory (stride 1), columns lie x_stride apart. Loads run along the rows,
    # stores along the columns; between them the rounded tile moves through shared memory. A row is held as two
    # power-of-two parts, HEAD and TAIL, so that 320 columns are 256 + 64 and not 512.
    program = tl.program_id(0)
    outer = (program // tiles).to(tl.int64)
    row = (program % tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = row < inner
    column_a = tl.arange(0, HEAD)
    column_b = HEAD + tl.arange(0, TAIL)
    within_a = column_a < width
    within_b = column_b < width
    inside_a = real[:, None] & within_a[None, :]
    inside_b = real[:, None] & within_b[None, :]
    source = x + outer * x_outer_stride + row[:, None]
    a = tl.load(source + column_a.to(tl.int64)[None, :] * x_stride, mask=inside_a, other=0.0).to(tl.float32)
    b = tl.load(source + column_b.to(tl.int64)[None, :] * x_stride, mask=inside_b, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(a * scale, axis=1) + tl.sum(b * scale, axis=1), count * scale)
    if x.dtype.element_ty == tl.float32:
        rest_a = tl.where(within_a[None, :], a - mean[:, None], 0.0)
        rest_b = tl.where(within_b[None, :], b - mean[:, None], 0.0)
        mean += (tl.sum(rest_a * scale, axis=1) + tl.sum(rest_b * scale, axis=1)) / (count * scale)
    a = tl.where(within_a[None, :], a - mean[:, None], 0.0)
    b = tl.where(within_b[None, :], b - mean[:, None], 0.0)
    rstd = tl.rsqrt((tl.sum(a * a, axis=1) + tl.sum(b * b, axis=1)) / count + eps)
    target = out + (outer * inner + row)[:, None] * width
    result_a = _affine(a, rstd, weight, bias, column_a, within_a)
    tl.store(target + column_a[None, :], result_a.to(out.dtype.element_ty), mask=inside_a)
    result_b = _affine(b, rstd, weight, bias, column_b, within_b)
    tl.store(target + column_b[None, :], result_b.to(out.dtype.element_ty), mask=inside_b)


@triton.jit
def _wide(x, weight, bias, out, width, x_row_stride, eps, count, scale, BLOCK: tl.constexpr):
    # Rows that are too long for registers: one program a row, which walks it several times.
    row = tl.program_id(0).to(tl.int64)
    source = x + row * x_row_stride
    target = out + row * width
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.load(source + column, mask=column < width, other=0.0).to(tl.float32) * scale
    mean = tl.div_rn(tl.sum(total, axis=0), count * scale)
    if x.dtype.element_ty == tl.float32:
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)
            value = tl.load(source + column, mask=column < width, other=0.0).to(tl.float32)
            total += tl.where(column < width, value - mean, 0.0) * scale
        mean += tl.sum(total, axis=0) / (count * scale)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(source + column, mask=column < width, other=0.0).to(tl.float32)
        centred = tl.where(column < width, value - mean, 0.0)
        total += centred * centred
    rstd = tl.rsqrt(tl.sum(total, axis=0) / count + eps)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        within = column < width
        result = (tl.load(source + column, mask=within, other=0.0).to(tl.float32) - mean) * rstd
        if weight is not None:
            result = result * tl.load(weight + column, mask=within, other=0.0).to(tl.float32)
        if bias is not None:
            result = result + tl.load(bias + column, mask=within, other=0.0).to(tl.float32)
        tl.store(target + column, result.to(out.dtype.element_ty), mask=within)


_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def _parameter(tensor, shape, input, name):
    if tensor is None:
        return None
    if tuple(tensor.shape) != shape:
        raise RuntimeError(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")
    if tensor.dtype not in _TYPES or tensor.device != input.device:
        raise TypeError(f"{name} of {tensor.dtype} on {tensor.device} is not taken")
    return tensor.contiguous()


def _outer_inner(input):
    """(outer, its stride, inner) if the leading dimensions are outer x inner rows, the inner ones 1 apart; else None."""
    merged = []
    for size, stride in zip(input.shape[:-1], input.stride()[:-1], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    if not merged or merged[-1][1] != 1 or len(merged) > 2:
        return None
    outer, outer_stride = merged[0] if len(merged) == 2 else (1, 0)
    return outer, outer_stride, merged[-1][0]


def layer_norm(
    input: torch.Tensor,
    normalized_shape,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    shape = tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise RuntimeError(f"normalized_shape {shape} does not end the input's shape {tuple(input.shape)}")
    if input.dtype not in _TYPES:
        raise TypeError(f"{input.dtype} is not computed here")
    weight = _parameter(weight, shape, input, "weight")
    bias = _parameter(bias, shape, input, "bias")
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    elements = out.numel()
    if elements == 0:
        return out
    width = 1
    for size in shape:
        width *= size
    if width > 2**30:
        raise ValueError(f"rows of {width} elements are not taken")
    rows = elements // width
    eps = float(eps)
    count = float(width)
    block = triton.next_power_of_2(width)
    scale = 1.0 / block
    if input.data_ptr() % 16:
        input = input.clone()  # an aligned copy: the same order of summation at every address

    if not input.is_contiguous():
        if len(shape) == 1 and 32 <= width <= 1024 and input.stride(-1) != 1:
            split = _outer_inner(input)
            if split is not None and split[2] >= 16:
                outer, outer_stride, inner = split
                head = block // 2
                tail = max(16, triton.next_power_of_2(width - head))
                tile = 128 // input.element_size()
                if tile * (head + tail) > 32768:
                    tile //= 2
                tiles = triton.cdiv(inner, tile)
                _columns[(outer * tiles,)](
                    input,
                    weight,
                    bias,
                    out,
                    inner,
                    tiles,
                    width,
                    outer_stride,
                    input.stride(-1),
                    eps,
                    count,
                    scale,
                    ROWS=tile,
                    HEAD=head,
                    TAIL=tail,
                    num_warps=8,
                )
                return out
        input = input.reshape(rows, width)
        if width > 1 and input.stride(1) != 1:
            input = input.contiguous()
        row_stride = input.stride(0)
    else:
        row_stride = width

    if block > 32768:
        _wide[(rows,)](
            input, weight, bias, out, width, row_stride, eps, count, scale, BLOCK=8192, num_warps=8
        )
        return out
    tile = max(1, min(128, 4096 // block))
    while tile > 1 and triton.cdiv(rows, tile) < 264:
        tile //= 2
    _rows[(triton.cdiv(rows, tile),)](
        input,
        weight,
        bias,
        out,
        rows,
        width,
        row_stride,
        eps,
        count,
        scale,
        ROWS=tile,
        BLOCK=block,
        num_warps=max(4, min(16, block // 1024)),
    )
    return out
