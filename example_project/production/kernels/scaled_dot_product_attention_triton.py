import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2E = 1.4426950408889634
BLOCK_N = 64
MAX_SPLITS = 32
PROGRAMS = 264  # two a multiprocessor of an H200


@triton.jit
def _step(
    acc,
    total,
    peak,
    queries,
    k_desc,
    v_desc,
    b,
    hk,
    start,
    rows,
    keys,
    scale,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATIVE: tl.constexpr,
    EDGE: tl.constexpr,
):
    k_tile = tl.reshape(k_desc.load([b, hk, start, 0]), (BLOCK_N, BLOCK_D))
    score = tl.dot(queries, tl.trans(k_tile))
    if NEGATIVE:
        score = -score
    if EDGE:
        n = start + tl.arange(0, BLOCK_N)
        seen = (n[None, :] < keys) & (rows[:, None] >= 0)
        if CAUSAL:
            seen = seen & (rows[:, None] >= n[None, :])
        score = tl.where(seen, score, float("-inf"))
    higher = tl.maximum(peak, tl.max(score, axis=1) * scale)
    safe = tl.where(higher == float("-inf"), 0.0, higher)
    p = tl.exp2(score * scale - safe[:, None])
    alpha = tl.exp2(peak - safe)
    total = total * alpha + tl.sum(p, axis=1)
    acc = acc * alpha[:, None]
    v_tile = tl.reshape(v_desc.load([b, hk, start, 0]), (BLOCK_N, BLOCK_DV))
    if EDGE and CAUSAL:
        wide = v_tile.to(tl.float32)
        finite = tl.abs(wide) < float("inf")
        if tl.min(tl.min(finite.to(tl.int32), axis=1), axis=0) == 0:
            # NaN and infinities of value go only to the rows that see their key.
            seeing = seen.to(v_tile.dtype)
            up = tl.where(finite | (wide < 0.0), 0.0, 1.0).to(v_tile.dtype)
            acc = acc + tl.where(tl.dot(seeing, up) > 0.0, float("inf"), 0.0)
            down = tl.where(finite | (wide > 0.0), 0.0, 1.0).to(v_tile.dtype)
            acc = acc + tl.where(tl.dot(seeing, down) > 0.0, float("-inf"), 0.0)
            v_tile = tl.where(finite, wide, 0.0).to(v_tile.dtype)
    acc = tl.dot(p.to(v_tile.dtype), v_tile, acc)
    return acc, total, higher


@triton.jit(do_not_specialize=["L", "S", "H", "group", "blocks", "heads", "out_b", "out_h", "out_l"])
def _many_rows(
    q_desc,
    k_desc,
    v_desc,
    out,
    out_b,
    out_h,
    out_l,
    L,
    S,
    H,
    group,
    blocks,
    heads,
    scale,
    DV: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    NEGATIVE: tl.constexpr,
):
    pid = tl.program_id(0)
    if CAUSAL:  # the longest rows first
        bh = pid % heads
        block = blocks - 1 - pid // heads
    else:
        bh = pid // blocks
        block = pid % blocks
    h = bh % H
    b = bh // H
    hk = h // group
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    queries = tl.reshape(q_desc.load([b, h, block * BLOCK_M, 0]), (BLOCK_M, BLOCK_D))
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    if CAUSAL:
        full = tl.minimum(S, block * BLOCK_M) // BLOCK_N * BLOCK_N
        end = tl.minimum(S, block * BLOCK_M + BLOCK_M)
    else:
        full = S // BLOCK_N * BLOCK_N
        end = S
    for start in tl.range(0, full, BLOCK_N):
        acc, total, peak = _step(
            acc, total, peak, queries, k_desc, v_desc, b, hk, start, rows, S, scale,
            BLOCK_D, BLOCK_DV, BLOCK_N, CAUSAL, NEGATIVE, False,
        )  # fmt: skip
    for start in tl.range(full, end, BLOCK_N, num_stages=1):
        acc, total, peak = _step(
            acc, total, peak, queries, k_desc, v_desc, b, hk, start, rows, S, scale,
            BLOCK_D, BLOCK_DV, BLOCK_N, CAUSAL, NEGATIVE, True,
        )  # fmt: skip
    nothing = total == 0.0
    result = tl.where(nothing[:, None], 0.0, acc / tl.where(nothing, 1.0, total)[:, None])
    e = tl.arange(0, BLOCK_DV)
    unit = b.to(tl.int64) * out_b + h.to(tl.int64) * out_h + rows.to(tl.int64) * out_l
    tl.store(
        out + (unit * DV)[:, None] + e[None, :],
        result.to(out.dtype.element_ty),
        mask=(rows[:, None] < L) & (e[None, :] < DV),
    )


@triton.jit(do_not_specialize=["L", "S", "HKV", "group", "splits"])
def _few_rows(
    q,
    k,
    v,
    out,
    part,
    stat,
    L,
    S,
    HKV,
    group,
    splits,
    scale,
    sign,
    qb,
    qh,
    ql,
    kb,
    kh,
    kn,
    vb,
    vh,
    vn,
    ob,
    oh,
    ol,
    A: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FINAL: tl.constexpr,
):
    pid = tl.program_id(0)
    pair = pid // splits
    split = pid % splits
    hk = pair % HKV
    b = (pair // HKV).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    count = group * L
    head = (hk * group + r % group).to(tl.int64)
    query = (r // group).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_DV)
    local = tl.arange(0, BLOCK_N)
    k_step = kn * A
    v_step = vn * A

    q_row = b * A * qb + head * A * qh + query * A * ql
    queries = tl.load(
        q + q_row[:, None] + d[None, :], mask=(r[:, None] < count) & (d[None, :] < D), other=0.0
    )
    queries = (queries.to(tl.float32) * sign).to(q.dtype.element_ty)
    k_base = k + b * A * kb + hk.to(tl.int64) * A * kh
    v_base = v + b * A * vb + hk.to(tl.int64) * A * vh
    k_local = local[:, None] * k_step + d[None, :]
    v_local = local[:, None] * v_step + e[None, :]

    tiles = (S + BLOCK_N - 1) // BLOCK_N
    lo = tiles * split // splits * BLOCK_N
    hi = tl.minimum(tiles * (split + 1) // splits * BLOCK_N, S)

    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    for start in tl.range(lo, hi, BLOCK_N):
        first = start.to(tl.int64)
        n = start + local
        k_tile = tl.load(
            k_base + first * k_step + k_local, mask=(n[:, None] < S) & (d[None, :] < D), other=0.0
        )
        score = tl.dot(queries, tl.trans(k_tile)) * scale
        score = tl.where(n[None, :] < S, score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        alpha = tl.exp2(peak - safe)
        p = tl.exp2(score - safe[:, None])
        sums = sums * alpha[:, None] + p
        v_tile = tl.load(
            v_base + first * v_step + v_local, mask=(n[:, None] < S) & (e[None, :] < DV), other=0.0
        )
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc * alpha[:, None])
        peak = higher
    total = tl.sum(sums, axis=1)

    inside = (r[:, None] < count) & (e[None, :] < DV)
    if FINAL:
        nothing = total == 0.0
        result = acc / tl.where(nothing, 1.0, total)[:, None]
        result = tl.where(nothing[:, None], 0.0, result)
        o_row = b * A * ob + head * A * oh + query * A * ol
        tl.store(out + o_row[:, None] + e[None, :], result.to(out.dtype.element_ty), mask=inside)
    else:
        slot = pid.to(tl.int64) * count + r
        tl.store(part + slot[:, None] * DV + e[None, :], acc, mask=inside)
        tl.store(stat + slot * 2, peak, mask=r < count)
        tl.store(stat + slot * 2 + 1, total, mask=r < count)


@triton.jit(do_not_specialize=["L", "H", "HKV", "group", "splits"])
def _join(
    part,
    stat,
    out,
    L,
    H,
    HKV,
    group,
    splits,
    ob,
    oh,
    ol,
    A: tl.constexpr,
    DV: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    pid = tl.program_id(0)
    query = pid % L
    h = (pid // L) % H
    b = (pid // L // H).to(tl.int64)
    e = tl.arange(0, BLOCK_DV)
    s = tl.arange(0, BLOCK_S)
    valid = s < splits
    pair = b * HKV + h // group
    slot = (pair * splits + s) * (group * L) + (query * group + h % group)
    peak = tl.load(stat + slot * 2, mask=valid, other=float("-inf"))
    total = tl.load(stat + slot * 2 + 1, mask=valid, other=0.0)
    value = tl.load(
        part + slot[:, None] * DV + e[None, :], mask=valid[:, None] & (e[None, :] < DV), other=0.0
    )
    top = tl.max(peak, axis=0)
    top = tl.where(top == float("-inf"), 0.0, top)
    weight = tl.exp2(peak - top)
    whole = tl.sum(weight * total, axis=0)
    result = tl.sum(weight[:, None] * value, axis=0)
    result = tl.where(whole == 0.0, 0.0, result / tl.where(whole == 0.0, 1.0, whole))
    o_row = b * A * ob + h.to(tl.int64) * A * oh + query.to(tl.int64) * A * ol
    tl.store(out + o_row + e, result.to(out.dtype.element_ty), mask=e < DV)


def _described(t, block):
    """A descriptor for the tensor memory accelerator; what it cannot address is copied first."""
    width = t.shape[3]

    def strides(t):
        return [step if size > 1 else width for step, size in zip(t.stride()[:3], t.shape[:3], strict=True)]

    if (
        t.data_ptr() % 16
        or t.stride(3) != 1
        or not all(step > 0 and step % 8 == 0 and step < 2**38 for step in strides(t))
    ):
        t = t.clone(memory_format=torch.contiguous_format)
    return TensorDescriptor(t, list(t.shape), [*strides(t), 1], [1, 1, *block])


def _reachable(t):
    """The same where rows that are next to each other can be told apart by 32 bits."""
    if (t.shape[3] > 1 and t.stride(3) != 1) or (t.shape[2] > 1 and t.stride(2) >= 2**23):
        t = t.contiguous()
    if t.shape[2] > 1 and t.stride(2) >= 2**23:
        raise ValueError("rows are too far apart")
    return t


def _strides(t):
    return [step if size > 1 else 0 for step, size in zip(t.stride()[:3], t.shape[:3], strict=True)]


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    if dropout_p != 0.0 or attn_mask is not None:
        raise NotImplementedError("neither dropout nor a mask")
    if query.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError("float16 and bfloat16 only")
    if key.dtype != query.dtype or value.dtype != query.dtype:
        raise TypeError("query, key and value must have one dtype")
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("query, key and value must have four dimensions")
    if not query.is_cuda or key.device != query.device or value.device != query.device:
        raise ValueError("query, key and value must be on one CUDA device")
    B, H, L, E = query.shape
    HKV, S = key.shape[1], key.shape[2]
    EV = value.shape[3]
    if key.shape[0] != B or key.shape[3] != E or value.shape[:3] != key.shape[:3]:
        raise ValueError("shapes do not fit")
    if HKV != H and not (enable_gqa and HKV > 0 and H % HKV == 0):
        raise ValueError("the numbers of heads do not fit")
    if not (0 < E <= 256 and 0 < EV <= 256 and E % 8 == 0 and EV % 8 == 0):
        raise NotImplementedError("from 8 to 256 features a head, in steps of 8")
    if H > 1 and L > 1 and query.stride(1) < query.stride(2):
        out = torch.empty((B, L, H, EV), dtype=query.dtype, device=query.device).transpose(1, 2)
    else:
        out = torch.empty((B, H, L, EV), dtype=query.dtype, device=query.device)
    if out.numel() == 0:
        return out
    if is_causal and S > L:  # nobody sees them
        key, value, S = key[:, :, :L], value[:, :, :L], L
    causal = is_causal and L > 1
    if S == 0:
        raise NotImplementedError("no keys")
    group = H // HKV
    factor = (1.0 / math.sqrt(E) if scale is None else float(scale)) * LOG2E
    sign, factor = math.copysign(1.0, factor), abs(factor)
    if factor < 2.0**-120:
        raise NotImplementedError("a scale of 0, or nearly so")
    blocks = {
        "BLOCK_D": max(16, triton.next_power_of_2(E)),
        "BLOCK_DV": max(16, triton.next_power_of_2(EV)),
        "BLOCK_N": BLOCK_N,
        "DV": EV,
    }
    if not causal and group * L <= 16:
        q, k, v = map(_reachable, (query, key, value))
        qs, ks, vs, outs = map(_strides, (q, k, v, out))
        A = 8 if all(step % 8 == 0 for step in qs + ks + vs + outs) else 1
        qs, ks, vs, outs = ([step // A for step in steps] for steps in (qs, ks, vs, outs))
        pairs = B * HKV
        splits = max(1, min(triton.cdiv(S, BLOCK_N), MAX_SPLITS, PROGRAMS // pairs))
        if pairs * splits >= 2**31 or B * H * L >= 2**31:
            raise ValueError("too many programs")
        part = stat = out
        if splits > 1:
            slots = pairs * splits * group * L
            part = torch.empty((slots, EV), dtype=torch.float32, device=query.device)
            stat = torch.empty((slots, 2), dtype=torch.float32, device=query.device)
        _few_rows[(pairs * splits,)](
            q, k, v, out, part, stat, L, S, HKV, group, splits, factor, sign, *qs, *ks, *vs, *outs,
            A=A, D=E, BLOCK_M=16, FINAL=splits == 1, **blocks,
        )  # fmt: skip
        if splits > 1:
            _join[(B * H * L,)](
                part, stat, out, L, H, HKV, group, splits, *outs,
                A=A, DV=EV, BLOCK_DV=blocks["BLOCK_DV"], BLOCK_S=MAX_SPLITS,
            )  # fmt: skip
        return out
    rows = 64
    count = triton.cdiv(L, rows)
    if count * B * H >= 2**31:
        raise ValueError("too many programs")
    units = (L * H, 1, H) if out.stride(1) < out.stride(2) else (H * L, L, 1)
    _many_rows[(count * B * H,)](
        _described(query, [rows, blocks["BLOCK_D"]]),
        _described(key, [BLOCK_N, blocks["BLOCK_D"]]),
        _described(value, [BLOCK_N, blocks["BLOCK_DV"]]),
        out, *units, L, S, H, group, count, B * H, factor,
        BLOCK_M=rows, CAUSAL=causal, NEGATIVE=sign < 0, num_stages=3 if max(E, EV) <= 128 else 2, **blocks,
    )  # fmt: skip
    return out
