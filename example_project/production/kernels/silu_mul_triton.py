import torch
import triton
import triton.language as tl

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@triton.jit
def _silu_mul(gate, up, EXACT: tl.constexpr):
    value = gate.to(tl.float32)
    if EXACT:
        # exp(-value) = 2^whole · 2^part, the argument in two pieces; the bounds give 0 and inf, NaN stays
        power = 0.0 - value
        power = tl.where(power > 100.0, 100.0, power)
        power = tl.where(power < -100.0, -100.0, power)
        whole = tl.floor(power * 1.4426950216293335)
        log2e = tl.full(power.shape, 1.4426950216293335, tl.float32)
        part = tl.fma(power, log2e, 0.0 - whole) + power * 1.9259629911266175e-08
        silu = tl.div_rn(value, 1.0 + tl.exp2(whole) * tl.exp2(part))
    else:
        silu = value / (1.0 + tl.exp(0.0 - value))
    return silu.to(gate.dtype).to(tl.float32) * up.to(tl.float32)


@triton.jit
def _flat(gate, up, out, total, EXACT: tl.constexpr, BLOCK: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < total
    left = tl.load(gate + offset, mask=inside, other=0.0)
    right = tl.load(up + offset, mask=inside, other=0.0)
    result = _silu_mul(left, right, EXACT)
    tl.store(out + offset, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _strided(
    gate, up, out, rows, width, blocks, gate_row_stride, gate_stride, up_row_stride, up_stride,
    EXACT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = (program % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    left = tl.load(gate + row * gate_row_stride + column * gate_stride, mask=inside, other=0.0)
    right = tl.load(up + row * up_row_stride + column * up_stride, mask=inside, other=0.0)
    result = _silu_mul(left, right, EXACT)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    dtype = gate.dtype
    if dtype not in _DTYPES or up.dtype not in _DTYPES:
        raise TypeError(f"silu_mul takes bfloat16, float16 and float32, not {dtype} and {up.dtype}")
    if gate.device != up.device:
        raise ValueError(f"silu_mul takes tensors of one device, not {gate.device} and {up.device}")
    out_dtype = dtype if up.dtype == dtype else torch.result_type(gate, up)
    if gate.shape != up.shape:
        gate, up = torch.broadcast_tensors(gate, up)
    exact = dtype == torch.float32

    out = torch.empty_like(gate, dtype=out_dtype)
    total = out.numel()
    if total == 0:
        return out
    # what empty_like allots is dense: equal strides mean that all three lie in one order without gaps
    if (gate.is_contiguous() and up.is_contiguous()) or gate.stride() == up.stride() == out.stride():
        if total <= 1 << 20:
            block, warps = 1024, 4
        else:
            block, warps = 4096, 8
        _flat[(triton.cdiv(total, block),)](
            gate, up, out, total, EXACT=exact, BLOCK=block, num_warps=warps, num_stages=1
        )
        return out

    width = gate.shape[-1]
    rows = total // width
    out = torch.empty(gate.shape, dtype=out_dtype, device=gate.device)
    gate = gate.reshape(rows, width)
    up = up.reshape(rows, width)
    block = min(2048, triton.next_power_of_2(width))
    per_program = 2048 // block
    blocks = triton.cdiv(width, block)
    programs = triton.cdiv(rows, per_program) * blocks
    if programs >= 2**31:
        raise ValueError("silu_mul: too many elements for one launch")
    _strided[(programs,)](
        gate, up, out, rows, width, blocks, *gate.stride(), *up.stride(),
        EXACT=exact, ROWS=per_program, BLOCK=block, num_warps=4, num_stages=1,
    )  # fmt: skip
    return out
