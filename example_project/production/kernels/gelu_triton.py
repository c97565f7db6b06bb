import torch
import triton
import triton.language as tl

_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32))


@triton.jit
def _gelu(loaded, TANH: tl.constexpr):
    x = loaded.to(tl.float32)
    if TANH:
        # 1 + tanh(u) = 2 / (1 + exp(-2u)); the constants are sqrt(2 / pi) times 1 and 0.044715.
        u = x * (0.7978845608028654 + 0.035677408136300125 * (x * x))
        result = x / (1.0 + tl.exp(-2.0 * u))
    else:
        if loaded.dtype == tl.float32:
            result = x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        else:
            d = 1.0 + 0.23164188874 * tl.abs(x)
            t = tl.inline_asm_elementwise(
                "rcp.approx.ftz.f32 $0, $1;", "=f,f", [d], dtype=tl.float32, is_pure=True, pack=1
            )
            power = (x * -0.7213475204444817) * x
            e = tl.inline_asm_elementwise(
                "ex2.approx.ftz.f32 $0, $1;", "=f,f", [power], dtype=tl.float32, is_pure=True, pack=1
            )
            p = 0.5307027145 * t - 0.7265760135
            p = p * t + 0.7107068705
            p = p * t - 0.142248368
            p = p * t + 0.127414796
            tail = (p * t) * e
            result = x * tl.where(x < 0, tail, 1.0 - tail)
    return result


@triton.jit
def _flat(x, out, count, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, mask=inside, other=0.0)
    tl.store(out + offsets, _gelu(value, TANH).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rows(
    x,
    out,
    rows,
    columns,
    row_stride,
    column_stride,
    TANH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    pid = tl.program_id(0)
    across = (columns - 1) // COLUMNS + 1
    row = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (pid % across).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    value = tl.load(
        x + ((row * row_stride)[:, None] + (column * column_stride)[None, :]), mask=inside, other=0.0
    )
    places = (row * columns)[:, None] + column[None, :]
    tl.store(out + places, _gelu(value, TANH).to(out.dtype.element_ty), mask=inside)


def _merged(shape, strides):
    """Merges neighbouring dimensions that one stride reaches; dimensions of one element go."""
    sizes, steps = [], []
    for size, step in zip(shape, strides, strict=False):
        if size == 1:
            continue
        if sizes and steps[-1] == size * step:
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
    return sizes, steps


def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    if approximate == "none":
        tanh = False
    elif approximate == "tanh":
        tanh = True
    else:
        raise RuntimeError("approximate argument must be either none or tanh.")
    if input.dtype not in _FLOATS:
        raise TypeError(f"unsupported type: {input.dtype}")
    out = torch.empty_like(input)
    count = input.numel()
    if count == 0:
        return out
    # The output is dense: where its strides are the input's, both are one stretch of memory in the same order.
    if not input.is_contiguous() and input.stride() != out.stride():
        order = sorted(range(input.dim()), key=out.stride, reverse=True)
        moved = input.permute(order)
        sizes, steps = _merged(moved.shape, moved.stride())
        dense = out.permute(order).is_contiguous()
        if dense and 1 <= len(sizes) <= 2:
            if len(sizes) == 1:
                sizes, steps = [1, *sizes], [0, *steps]
            rows, columns = sizes
            wide = min(256, triton.next_power_of_2(columns))
            tall = min(2048 // wide, triton.next_power_of_2(rows))
            grid = -(-rows // tall) * -(-columns // wide)
            warps = 4 if wide * tall >= 1024 else 1
            _rows[(grid,)](
                moved,
                out,
                rows,
                columns,
                steps[0],
                steps[1],
                TANH=tanh,
                ROWS=tall,
                COLUMNS=wide,
                num_warps=warps,
            )
            return out
        if dense:
            input = moved.contiguous()
        else:
            input = input.contiguous()
            out = torch.empty_like(input)
    if count >= 1 << 20:
        block, warps = 2048, 4
    else:
        block, warps = 512, 2
    _flat[(-(-count // block),)](input, out, count, TANH=tanh, BLOCK=block, num_warps=warps)
    return out
