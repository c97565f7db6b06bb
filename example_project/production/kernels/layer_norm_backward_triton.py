import math

import torch
import triton
import triton.language as tl

_TYPES = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit(do_not_specialize=["rows", "steps", "parts"])
def _rows(
    dy,
    x,
    w,
    dx,
    partial,
    rows,
    steps,
    parts,
    width,
    count,
    eps,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # A program walks over tiles of ROWS rows, writes their dx, and keeps its sums for dw and db in registers.
    pid = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    sum_w = tl.zeros([BLOCK], tl.float32)
    sum_b = tl.zeros([BLOCK], tl.float32)
    if HAS_W:
        scale = tl.load(w + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    for step in range(steps):
        row = ((pid + step * parts) * ROWS + tl.arange(0, ROWS))[:, None]
        live = (row < rows) & inside[None, :]
        at = row * width + column[None, :]
        value = tl.load(x + at, mask=live, other=0.0)
        grad = tl.load(dy + at, mask=live, other=0.0)
        value = value.to(tl.float32)
        grad = grad.to(tl.float32)
        mean = tl.div_rn(tl.sum(value, axis=1), count)
        value = tl.where(live, value - mean[:, None], 0.0)
        rstd = tl.rsqrt(tl.div_rn(tl.sum(value * value, axis=1), count) + eps)[:, None]
        value = tl.where(live, value * rstd, 0.0)
        if HAS_W:
            sum_w += tl.sum(grad * value, axis=0)
        if HAS_B:
            sum_b += tl.sum(grad, axis=0)
        if HAS_W:
            grad = grad * scale
        along = tl.div_rn(tl.sum(grad * value, axis=1), count)[:, None]
        level = tl.div_rn(tl.sum(grad, axis=1), count)[:, None]
        result = rstd * (grad - level - value * along)
        tl.store(dx + at, result.to(dx.dtype.element_ty), mask=live)
    if HAS_W:
        tl.store(partial + pid * width + column, sum_w, mask=inside)
    if HAS_B:
        tl.store(partial + (pid + parts) * width + column, sum_b, mask=inside)


@triton.jit
def _long_rows(dy, x, w, dx, stats, width, count, eps, HAS_W: tl.constexpr, BLOCK: tl.constexpr):
    # Rows that do not fit into registers: dx, and mean and 1/std for the sums over rows.
    row = tl.program_id(0).to(tl.int64)
    dy += row * width
    x += row * width
    dx += row * width
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
    along = tl.zeros([BLOCK], tl.float32)
    level = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        column = start + lane
        inside = column < width
        value = (tl.load(x + column, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        grad = tl.load(dy + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_W:
            grad = grad * tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        along += tl.where(inside, grad * value, 0.0)
        level += grad
    mean_along = tl.div_rn(tl.sum(along, axis=0), count)
    mean_level = tl.div_rn(tl.sum(level, axis=0), count)
    for start in range(0, width, BLOCK):
        column = start + lane
        inside = column < width
        value = (tl.load(x + column, mask=inside, other=0.0).to(tl.float32) - mean) * rstd
        grad = tl.load(dy + column, mask=inside, other=0.0).to(tl.float32)
        if HAS_W:
            grad = grad * tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        result = rstd * (grad - mean_level - value * mean_along)
        tl.store(dx + column, result.to(dx.dtype.element_ty), mask=inside)
    pair = tl.arange(0, 2)
    tl.store(stats + row * 2 + pair, tl.where(pair == 0, mean, rstd), mask=pair < 2)


@triton.jit(do_not_specialize=["rows", "steps", "parts"])
def _long_columns(
    dy,
    x,
    stats,
    partial,
    rows,
    steps,
    parts,
    width,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64) % parts
    column = (tl.program_id(0).to(tl.int64) // parts) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    sum_w = tl.zeros([BLOCK], tl.float32)
    sum_b = tl.zeros([BLOCK], tl.float32)
    for step in range(steps):
        row = (part + step * parts) * ROWS + tl.arange(0, ROWS)
        live = (row < rows)[:, None] & inside[None, :]
        at = row[:, None] * width + column[None, :]
        grad = tl.load(dy + at, mask=live, other=0.0).to(tl.float32)
        if HAS_W:
            mean = tl.load(stats + row * 2, mask=row < rows, other=0.0)[:, None]
            rstd = tl.load(stats + row * 2 + 1, mask=row < rows, other=0.0)[:, None]
            value = (tl.load(x + at, mask=live, other=0.0).to(tl.float32) - mean) * rstd
            sum_w += tl.sum(tl.where(live, grad * value, 0.0), axis=0)
        if HAS_B:
            sum_b += tl.sum(grad, axis=0)
    if HAS_W:
        tl.store(partial + part * width + column, sum_w, mask=inside)
    if HAS_B:
        tl.store(partial + (part + parts) * width + column, sum_b, mask=inside)


@triton.jit(do_not_specialize=["parts"])
def _add(partial, out, parts, width, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    column = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    total = tl.zeros([BLOCK_P, BLOCK_C], tl.float32)
    for start in range(0, parts, BLOCK_P):
        part = (start + tl.arange(0, BLOCK_P)).to(tl.int64)[:, None]
        total += tl.load(partial + part * width + column, mask=(part < parts) & (column < width), other=0.0)
    result = tl.sum(total, axis=0, keep_dims=True)
    tl.store(out + column, result.to(out.dtype.element_ty), mask=column < width)


@triton.jit(do_not_specialize=["parts"])
def _finish(
    partial,
    dw,
    db,
    parts,
    width,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    # Adds the sums of the programs, in a fixed order: the second coordinate chooses dw or db.
    if tl.program_id(1) == 0:
        if HAS_W:
            _add(partial, dw, parts, width, BLOCK_P, BLOCK_C)
    else:
        if HAS_B:
            _add(partial + tl.cast(parts, tl.int64) * width, db, parts, width, BLOCK_P, BLOCK_C)


def layer_norm_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    normalized_shape,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-05,
):
    shape = tuple(input.shape)
    normalized = tuple(normalized_shape)
    lead = len(shape) - len(normalized)
    if not normalized or lead < 0 or shape[lead:] != normalized:
        raise RuntimeError("normalized_shape is not the end of the shape of the input")
    if tuple(grad_output.shape) != shape:
        raise RuntimeError("grad_output needs the shape of the input")
    device = input.device
    if input.dtype not in _TYPES or grad_output.dtype not in _TYPES or grad_output.device != device:
        raise TypeError("float16, bfloat16 and float32 on one device only")
    for other in (weight, bias):
        if other is not None:
            if tuple(other.shape) != normalized:
                raise RuntimeError("weight and bias need the shape normalized_shape")
            if other.dtype not in _TYPES or other.device != device:
                raise TypeError("weight or bias of a type or device that is not taken")
    has_w, has_b = weight is not None, bias is not None
    dx = torch.empty(shape, dtype=input.dtype, device=device)
    dw = torch.empty(normalized, dtype=weight.dtype, device=device) if has_w else None
    db = torch.empty(normalized, dtype=bias.dtype, device=device) if has_b else None
    width = math.prod(normalized)
    if width == 0:
        return dx, dw, db
    rows = dx.numel() // width
    sums = has_w or has_b
    parts = 0
    partial = dx
    if rows:
        x, dy = input.contiguous(), grad_output.contiguous()
        w = weight.contiguous() if has_w else x
        eps, count = float(eps), float(width)
        most = max(1, min(528, 16777216 // width))  # programs: bounds the scratch memory, too
        if width <= 8192:
            block = triton.next_power_of_2(width)
            tile = max(1, min(64, 4096 // block))
            tiles = triton.cdiv(rows, tile)
            steps = triton.cdiv(tiles, most)
            parts = triton.cdiv(tiles, steps)
            if sums:
                partial = torch.empty((2, parts, width), dtype=torch.float32, device=device)
            _rows[(parts,)](
                dy,
                x,
                w,
                dx,
                partial,
                rows,
                steps,
                parts,
                width,
                count,
                eps,
                has_w,
                has_b,
                tile,
                block,
                num_warps=max(4, block // 512),
            )
        else:
            stats = torch.empty((rows, 2), dtype=torch.float32, device=device)
            _long_rows[(rows,)](dy, x, w, dx, stats, width, count, eps, has_w, 2048, num_warps=8)
            if sums:
                tiles = triton.cdiv(rows, 8)
                steps = triton.cdiv(tiles, min(most, 64))
                parts = triton.cdiv(tiles, steps)
                partial = torch.empty((2, parts, width), dtype=torch.float32, device=device)
                _long_columns[(triton.cdiv(width, 256) * parts,)](
                    dy, x, stats, partial, rows, steps, parts, width, has_w, has_b, 8, 256, num_warps=4
                )
    if sums:
        block_p = max(16, min(512, triton.next_power_of_2(max(parts, 1))))
        _finish[(triton.cdiv(width, 8), 2)](
            partial,
            dw if has_w else db,
            db if has_b else dw,
            parts,
            width,
            has_w,
            has_b,
            block_p,
            8,
            num_warps=4,
        )
    return dx, dw, db
