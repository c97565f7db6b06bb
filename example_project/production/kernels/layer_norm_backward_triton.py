import torch
import triton
import triton.language as tl

_WARPS = 132 * 8  # as many stay on the H200: a row of 1,024 elements is held by one, 32 elements a thread
_A_WARP = 1024
_MAX_CHUNK = 32768
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
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    col = tl.arange(0, CHUNK)
    inside = col < width
    lane_row = tl.arange(0, ROWS)
    if HAS_W:
        w = tl.load(weight + col, mask=inside, other=0.0).to(tl.float32)[None, :]
    dw = tl.zeros((ROWS, CHUNK), tl.float32)
    db = tl.zeros((ROWS, CHUNK), tl.float32)

    for tile in tl.range(pid, n_tiles, programs, num_stages=STAGES):
        row = (tl.zeros((ROWS,), tl.int64) + tile) * ROWS + lane_row
        live = row < n_rows
        mask = live[:, None] & inside[None, :]
        offset = (row * width)[:, None] + col[None, :]
        v = tl.load(x + offset, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + offset, mask=mask, other=0.0).to(tl.float32)
        of_g = g
        if HAS_W:
            of_g = g * w

        # Two sums that do not wait for each other go through the shuffles together.
        sx, sg = tl.reduce((v, of_g), 1, _add2)
        v = v - tl.div_rn(sx, width_f)[:, None]
        if not FULL:
            v = tl.where(inside[None, :], v, 0.0)
        var = tl.sum(v * v, axis=1) * inv_width
        # Rows beyond the end must add nothing to the sums, whatever eps is.
        rstd = tl.where(live, tl.rsqrt(var + eps), 0.0)[:, None]
        v = v * rstd
        if HAS_W:
            dw += g * v
        if HAS_B:
            db += g
        a = (tl.sum(of_g * v, axis=1) * inv_width)[:, None] * rstd
        b = (sg * inv_width)[:, None] * rstd
        tl.store(dx + offset, (of_g * rstd - (v * a + b)).to(dx.dtype.element_ty), mask=mask)

    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    out = partial + pid.to(tl.int64) * width
    if HAS_W:
        tl.store(out + col, tl.sum(dw, axis=0), mask=inside)
    if HAS_B:
        tl.store(out + programs.to(tl.int64) * width + col, tl.sum(db, axis=0), mask=inside)


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
    chunk = triton.next_power_of_2(max(1, width))
    if chunk > _MAX_CHUNK:
        raise ValueError("rows of more than 32768 elements are not supported")
    device = input.device
    has_w, has_b = weight is not None, bias is not None
    dx = torch.empty(input.shape, dtype=input.dtype, device=device)
    dw = torch.empty(shape, dtype=weight.dtype, device=device) if has_w else None
    db = torch.empty(shape, dtype=bias.dtype, device=device) if has_b else None
    if width == 0:
        return dx, dw, db

    n_rows = input.numel() // width
    sums = has_w or has_b
    warps = min(16, max(1, chunk // _A_WARP))
    block_rows = min(128, max(1, _A_WARP // chunk))
    n_tiles = triton.cdiv(n_rows, block_rows)
    # As few blocks as do the work in the same number of rounds.
    programs = triton.cdiv(n_tiles, triton.cdiv(n_tiles, _WARPS // warps)) if n_tiles else 0
    partial = torch.empty((2, max(1, programs), width), dtype=torch.float32, device=device) if sums else dx
    if programs:
        g = grad_output.contiguous()
        x = input.contiguous()
        w = weight.contiguous() if has_w else x
        # Tiles in flight are kept in shared memory: bounded by its size. Where lanes are left out a fourth pays.
        tile_bytes = block_rows * chunk * (g.element_size() + x.element_size())
        stages = max(1, min(3 if width == chunk else 4, 73728 // tile_bytes))
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
            FULL=width == chunk,
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
