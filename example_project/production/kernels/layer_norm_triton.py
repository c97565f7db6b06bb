import math

import torch
import triton
import triton.language as tl

_TYPES = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit(do_not_specialize=["rows"])
def _narrow(
    x,
    w,
    b,
    out,
    rows,
    width,
    x_stride,
    count,
    eps,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    REP: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    # The tile is [REP, ROWS, CHUNK]: a chunk spans the lanes of a warp, the warps lie along ROWS,
    # and REP stays in the registers of a thread, so that sums over a row are shuffles only.
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[None, :, None]
    column = (tl.arange(0, REP) * CHUNK)[:, None, None] + tl.arange(0, CHUNK)[None, None, :]
    inside = column < width
    live = (row < rows) & inside
    raw = tl.load(x + row * x_stride + column, mask=live, other=0.0)
    full = column + tl.zeros([REP, ROWS, CHUNK], tl.int32)
    if HAS_W:
        scale = tl.load(w + full, mask=full < width, other=0.0)
    if HAS_B:
        shift = tl.load(b + full, mask=full < width, other=0.0)
    value = raw.to(tl.float32)
    total = tl.sum(tl.sum(value, axis=0, keep_dims=True), axis=2, keep_dims=True)
    mean = tl.div_rn(total, count)
    value = tl.where(live, value - mean, 0.0)
    square = tl.sum(tl.sum(value * value, axis=0, keep_dims=True), axis=2, keep_dims=True)
    result = value * tl.rsqrt(tl.div_rn(square, count) + eps)
    if HAS_W:
        result = result * scale.to(tl.float32)
    if HAS_B:
        result = result + shift.to(tl.float32)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=live)


@triton.jit
def _one(
    x, w, b, out, width, x_stride, count, eps, HAS_W: tl.constexpr, HAS_B: tl.constexpr, BLOCK: tl.constexpr
):
    # One row a program, kept in registers.
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    raw = tl.load(x + row * x_stride + column, mask=inside, other=0.0)
    if HAS_W:
        scale = tl.load(w + column, mask=inside, other=0.0)
    if HAS_B:
        shift = tl.load(b + column, mask=inside, other=0.0)
    value = raw.to(tl.float32)
    mean = tl.div_rn(tl.sum(value, axis=0), count)
    value = tl.where(inside, value - mean, 0.0)
    result = value * tl.rsqrt(tl.div_rn(tl.sum(value * value, axis=0), count) + eps)
    if HAS_W:
        result = result * scale.to(tl.float32)
    if HAS_B:
        result = result + shift.to(tl.float32)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _long(
    x, w, b, out, width, x_stride, count, eps, HAS_W: tl.constexpr, HAS_B: tl.constexpr, BLOCK: tl.constexpr
):
    # Rows that do not fit into registers: three walks, the later two mostly from the cache.
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    out += row * width
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        column = start + lane
        total += tl.load(x + column, mask=column < width, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(total, axis=0), count)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        column = start + lane
        value = tl.load(x + column, mask=column < width, other=0.0).to(tl.float32) - mean
        total += tl.where(column < width, value * value, 0.0)
    rstd = tl.rsqrt(tl.div_rn(tl.sum(total, axis=0), count) + eps)
    for start in range(0, width, BLOCK):
        column = start + lane
        inside = column < width
        result = (tl.load(x + column, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        if HAS_W:
            result = result * tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_B:
            result = result + tl.load(b + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _turned(
    x,
    w,
    b,
    out,
    inner,
    tiles,
    width,
    outer_stride,
    column_stride,
    count,
    eps,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Neighbouring rows are neighbours in memory: the tile is read along rows and written along columns,
    # the compiler turns it in shared memory.
    pid = tl.program_id(0)
    outer = (pid // tiles).to(tl.int64)
    row = ((pid % tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)
    inside = column < width
    live = (row < inner) & inside[None, :]
    at = x + outer * outer_stride + row + column.to(tl.int64)[None, :] * column_stride
    value = tl.load(at, mask=live, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(value, axis=1), count)
    value = tl.where(live, value - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.div_rn(tl.sum(value * value, axis=1), count) + eps)
    result = value * rstd[:, None]
    if HAS_W:
        result = result * tl.load(w + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if HAS_B:
        result = result + tl.load(b + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    to = out + (outer * inner + row) * width + column[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=live)


def _row_stride(shape, strides, lead):
    """Distance of rows whose elements are neighbours, or None where there is no single one."""
    expected = 1
    for size, stride in zip(reversed(shape[lead:]), reversed(strides[lead:]), strict=False):
        if size != 1 and stride != expected:
            return None
        expected *= size
    distance, expected = expected, None
    for size, stride in zip(reversed(shape[:lead]), reversed(strides[:lead]), strict=False):
        if size == 1:
            continue
        if expected is None:
            distance = stride
        elif stride != expected:
            return None
        expected = stride * size
    return distance


def _turned_view(shape, strides, lead):
    """(outer, inner, outer stride) where neighbouring rows are neighbours in memory, else None."""
    inner, at = 1, lead - 1
    while at >= 0 and (shape[at] == 1 or strides[at] == inner):
        inner *= shape[at]
        at -= 1
    if inner < 16 or at > 0:
        return None
    return (1, inner, 0) if at < 0 else (shape[0], inner, strides[0])


def layer_norm(
    input: torch.Tensor,
    normalized_shape,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-05,
) -> torch.Tensor:
    shape = tuple(input.shape)
    normalized = tuple(normalized_shape)
    lead = len(shape) - len(normalized)
    if not normalized or lead < 0 or shape[lead:] != normalized:
        raise RuntimeError("normalized_shape is not the end of the shape of the input")
    if input.dtype not in _TYPES:
        raise TypeError("float16, bfloat16 and float32 only")
    for other in (weight, bias):
        if other is not None:
            if tuple(other.shape) != normalized:
                raise RuntimeError("weight and bias need the shape normalized_shape")
            if other.dtype not in _TYPES or other.device != input.device:
                raise TypeError("weight or bias of a type or device that is not taken")
    out = torch.empty(shape, dtype=input.dtype, device=input.device)
    total = out.numel()
    if total == 0:
        return out
    width = math.prod(normalized)
    rows = total // width
    has_w, has_b = weight is not None, bias is not None
    w = weight.contiguous() if has_w else input
    b = bias.contiguous() if has_b else input
    eps, count = float(eps), float(width)
    size = input.element_size()
    x, x_stride = input, width
    if not input.is_contiguous():
        strides = input.stride()
        x_stride = _row_stride(shape, strides, lead)
        if x_stride is None:
            turned = _turned_view(shape, strides, lead) if len(normalized) == 1 and width <= 1024 else None
            if turned is not None:
                outer, inner, outer_stride = turned
                block = triton.next_power_of_2(width)
                tile = max(16, min(64, 32768 // size // block))
                tiles = triton.cdiv(inner, tile)
                _turned[(outer * tiles,)](
                    input,
                    w,
                    b,
                    out,
                    inner,
                    tiles,
                    width,
                    outer_stride,
                    strides[lead],
                    count,
                    eps,
                    has_w,
                    has_b,
                    tile,
                    block,
                    num_warps=8,
                )
                return out
            x, x_stride = input.contiguous(), width
    if width <= 1024:
        span = 512 // size
        chunk = min(span, triton.next_power_of_2(width))
        rep = triton.next_power_of_2(triton.cdiv(width, chunk))
        tile = 4 * (span // chunk)
        _narrow[(triton.cdiv(rows, tile),)](
            x, w, b, out, rows, width, x_stride, count, eps, has_w, has_b, rep, tile, chunk, num_warps=4
        )
    elif width <= 16384:
        block = triton.next_power_of_2(width)
        _one[(rows,)](
            x, w, b, out, width, x_stride, count, eps, has_w, has_b, block, num_warps=min(16, block // 512)
        )
    else:
        _long[(rows,)](x, w, b, out, width, x_stride, count, eps, has_w, has_b, 4096, num_warps=16)
    return out
