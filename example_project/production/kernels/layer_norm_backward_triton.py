import torch
import triton
import triton.language as tl

_PROGRAMS = 264  # two persistent blocks on each SM of the H200
_STAGES = 3
_MAX_CHUNK = 8192
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit
def _add2(a0, a1, b0, b1):
    return a0 + b0, a1 + b1


@triton.jit
def _rows_kernel(
    grad,
    x,
    weight,
    dx,
    partial,
    n_rows,
    n_tiles,
    width,
    width_f,
    inv_width,
    eps,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    FULL: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    # A row is held as three chunks of CHUNK columns, so that 768 = 3 * 256 wastes no lane.
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    c0 = tl.arange(0, CHUNK)
    c1 = c0 + CHUNK
    c2 = c0 + 2 * CHUNK
    m0 = c0 < width
    m1 = c1 < width
    m2 = c2 < width
    lane_row = tl.arange(0, ROWS)

    if HAS_W:
        w0 = tl.load(weight + c0, mask=m0, other=0.0).to(tl.float32)[None, :]
        w1 = tl.load(weight + c1, mask=m1, other=0.0).to(tl.float32)[None, :]
        w2 = tl.load(weight + c2, mask=m2, other=0.0).to(tl.float32)[None, :]

    dw0 = tl.zeros((ROWS, CHUNK), tl.float32)
    dw1 = tl.zeros((ROWS, CHUNK), tl.float32)
    dw2 = tl.zeros((ROWS, CHUNK), tl.float32)
    db0 = tl.zeros((ROWS, CHUNK), tl.float32)
    db1 = tl.zeros((ROWS, CHUNK), tl.float32)
    db2 = tl.zeros((ROWS, CHUNK), tl.float32)

    for tile in tl.range(pid, n_tiles, programs, num_stages=STAGES):
        row = (tl.zeros((ROWS,), tl.int64) + tile) * ROWS + lane_row
        live = row < n_rows
        base = (row * width)[:, None]
        k0 = live[:, None] & m0[None, :]
        k1 = live[:, None] & m1[None, :]
        k2 = live[:, None] & m2[None, :]
        o0 = base + c0[None, :]
        o1 = base + c1[None, :]
        o2 = base + c2[None, :]
        x0 = tl.load(x + o0, mask=k0, other=0.0).to(tl.float32)
        x1 = tl.load(x + o1, mask=k1, other=0.0).to(tl.float32)
        x2 = tl.load(x + o2, mask=k2, other=0.0).to(tl.float32)
        g0 = tl.load(grad + o0, mask=k0, other=0.0).to(tl.float32)
        g1 = tl.load(grad + o1, mask=k1, other=0.0).to(tl.float32)
        g2 = tl.load(grad + o2, mask=k2, other=0.0).to(tl.float32)

        # Two sums that do not wait for each other go through the shuffles together.
        if HAS_W:
            sx, sg = tl.reduce((x0 + x1 + x2, g0 * w0 + g1 * w1 + g2 * w2), 1, _add2)
        else:
            sx, sg = tl.reduce((x0 + x1 + x2, g0 + g1 + g2), 1, _add2)
        mean = tl.div_rn(sx, width_f)[:, None]
        x0 = x0 - mean
        x1 = x1 - mean
        x2 = x2 - mean
        if not FULL:
            x0 = tl.where(m0[None, :], x0, 0.0)
            x1 = tl.where(m1[None, :], x1, 0.0)
            x2 = tl.where(m2[None, :], x2, 0.0)
        var = tl.sum(x0 * x0 + x1 * x1 + x2 * x2, axis=1) * inv_width
        # Rows beyond the end must add nothing to the sums, whatever eps is.
        rstd = tl.where(live, tl.rsqrt(var + eps), 0.0)[:, None]
        x0 = x0 * rstd
        x1 = x1 * rstd
        x2 = x2 * rstd
        if HAS_W:
            dw0 += g0 * x0
            dw1 += g1 * x1
            dw2 += g2 * x2
        if HAS_B:
            db0 += g0
            db1 += g1
            db2 += g2
        if HAS_W:
            g0 = g0 * w0
            g1 = g1 * w1
            g2 = g2 * w2
        a = (tl.sum(g0 * x0 + g1 * x1 + g2 * x2, axis=1) * inv_width)[:, None] * rstd
        b = (sg * inv_width)[:, None] * rstd
        tl.store(dx + o0, (g0 * rstd - (x0 * a + b)).to(dx.dtype.element_ty), mask=k0)
        tl.store(dx + o1, (g1 * rstd - (x1 * a + b)).to(dx.dtype.element_ty), mask=k1)
        tl.store(dx + o2, (g2 * rstd - (x2 * a + b)).to(dx.dtype.element_ty), mask=k2)

    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    out = partial + pid.to(tl.int64) * width
    if HAS_W:
        tl.store(out + c0, tl.sum(dw0, axis=0), mask=m0)
        tl.store(out + c1, tl.sum(dw1, axis=0), mask=m1)
        tl.store(out + c2, tl.sum(dw2, axis=0), mask=m2)
    if HAS_B:
        out += programs.to(tl.int64) * width
        tl.store(out + c0, tl.sum(db0, axis=0), mask=m0)
        tl.store(out + c1, tl.sum(db1, axis=0), mask=m1)
        tl.store(out + c2, tl.sum(db2, axis=0), mask=m2)


@triton.jit
def _sums_kernel(
    partial,
    dw,
    db,
    parts,
    width,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    PARTS: tl.constexpr,
    COLS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        tl.extra.cuda.gdc_wait()  # nothing is read or written before the first kernel is done
    which = tl.program_id(1)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = col < width
    lane = tl.arange(0, PARTS)
    source = partial + which.to(tl.int64) * parts * width
    total = tl.zeros((PARTS, COLS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + lane
        total += tl.load(
            source + part.to(tl.int64)[:, None] * width + col[None, :],
            mask=(part < parts)[:, None] & inside[None, :],
            other=0.0,
        )
    result = tl.sum(total, axis=0)
    if HAS_W:  # noqa: SIM102 - the first one is the compiler's
        if which == 0:
            tl.store(dw + col, result.to(dw.dtype.element_ty), mask=inside)
    if HAS_B:  # noqa: SIM102
        if which == 1:
            tl.store(db + col, result.to(db.dtype.element_ty), mask=inside)


def layer_norm_backward(grad_output, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if isinstance(normalized_shape, int):
        normalized_shape = (normalized_shape,)
    shape = tuple(int(n) for n in normalized_shape)
    if grad_output is None:
        raise ValueError("layer_norm_backward needs grad_output")
    if not shape or len(shape) > input.dim() or tuple(input.shape[input.dim() - len(shape) :]) != shape:
        raise ValueError("normalized_shape does not match the last dimensions of input")
    if grad_output.shape != input.shape:
        raise ValueError("grad_output must have the shape of input")
    for parameter in (weight, bias):
        if parameter is not None and tuple(parameter.shape) != shape:
            raise ValueError("weight and bias must have the shape normalized_shape")
    for tensor in (grad_output, input, weight, bias):
        if tensor is None:
            continue
        if tensor.dtype not in _FLOATS:
            raise TypeError("float16, bfloat16 and float32 are supported")
        if not tensor.is_cuda or tensor.device != input.device:
            raise ValueError("all tensors must be on one CUDA device")
    if input.device.index != torch.cuda.current_device():
        with torch.cuda.device(input.device):
            return _launch(grad_output, input, shape, weight, bias, eps)
    return _launch(grad_output, input, shape, weight, bias, eps)


def _launch(grad_output, input, shape, weight, bias, eps):
    width = 1
    for n in shape:
        width *= n
    chunk = triton.next_power_of_2(max(1, triton.cdiv(width, 3)))
    if chunk > _MAX_CHUNK:
        raise ValueError("rows of more than 24576 elements are not supported")
    device = input.device
    has_w, has_b = weight is not None, bias is not None
    dx = torch.empty(input.shape, dtype=input.dtype, device=device)
    dw = torch.empty(shape, dtype=weight.dtype, device=device) if has_w else None
    db = torch.empty(shape, dtype=bias.dtype, device=device) if has_b else None
    if width == 0:
        return dx, dw, db

    n_rows = input.numel() // width
    sums = has_w or has_b
    warps = min(16, max(4, chunk // 256))
    block_rows = min(128, max(1, warps * 256 // chunk))  # of 768 columns: a row per warp
    n_tiles = triton.cdiv(n_rows, block_rows)
    # As few blocks as do the work in the same number of rounds.
    programs = triton.cdiv(n_tiles, triton.cdiv(n_tiles, _PROGRAMS)) if n_tiles else 0
    partial = torch.empty((2, max(1, programs), width), dtype=torch.float32, device=device) if sums else dx
    if programs:
        g = grad_output.contiguous()
        x = input.contiguous()
        w = weight.contiguous() if has_w else x
        # Tiles in flight are kept in shared memory: bounded by its size.
        tile_bytes = block_rows * 3 * chunk * (g.element_size() + x.element_size())
        stages = max(1, min(_STAGES, 73728 // tile_bytes))
        _rows_kernel[(programs,)](
            g,
            x,
            w,
            dx,
            partial,
            n_rows,
            n_tiles,
            width,
            float(width),
            1.0 / width,
            float(eps),
            HAS_W=has_w,
            HAS_B=has_b,
            FULL=width == 3 * chunk,
            ROWS=block_rows,
            CHUNK=chunk,
            STAGES=stages,
            PDL=sums,
            num_warps=warps,
        )
    if sums:
        cols = 16
        pdl = programs > 0
        _sums_kernel[(triton.cdiv(width, cols), 2)](
            partial,
            dw if has_w else partial,
            db if has_b else partial,
            programs,
            width,
            HAS_W=has_w,
            HAS_B=has_b,
            PARTS=256,
            COLS=cols,
            PDL=pdl,
            num_warps=8,
            launch_pdl=pdl,
        )
    return dx, dw, db
