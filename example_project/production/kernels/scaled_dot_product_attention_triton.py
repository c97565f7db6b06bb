import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
MAX_SPLITS = 32
WANTED_PROGRAMS = 1056


@triton.jit
def _walk(
    acc,
    total,
    peak,
    queries,
    k_base,
    v_base,
    bias_base,
    lo,
    hi,
    rows,
    L,
    S,
    scale,
    k_step,
    v_step,
    bias_l,
    bias_s,
    D: tl.constexpr,
    DV: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    BIAS: tl.constexpr,
    GUARD: tl.constexpr,
    MASKED: tl.constexpr,
    STAGES: tl.constexpr,
):
    local = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_DV)
    k_local = local[:, None] * k_step + d[None, :]
    v_local = local[:, None] * v_step + e[None, :]
    k_in = d[None, :] < D
    v_in = e[None, :] < DV
    for start in tl.range(lo, hi, BLOCK_N, num_stages=STAGES):
        first = start.to(tl.int64)
        if MASKED:
            n = start + local
            k_tile = tl.load(k_base + first * k_step + k_local, mask=(n[:, None] < S) & k_in, other=0.0)
            v_tile = tl.load(v_base + first * v_step + v_local, mask=(n[:, None] < S) & v_in, other=0.0)
            if GUARD:
                bad = tl.max(
                    tl.max(tl.where(tl.abs(v_tile.to(tl.float32)) < float("inf"), 0, 1), axis=1), axis=0
                )
            score = tl.dot(queries, tl.trans(k_tile)) * scale
            seen = n[None, :] < S
            if CAUSAL:
                seen = seen & (rows[:, None] >= n[None, :])
            if BIAS > 0:
                bias = tl.load(
                    bias_base + rows[:, None].to(tl.int64) * bias_l + n[None, :].to(tl.int64) * bias_s,
                    mask=(rows[:, None] < L) & (n[None, :] < S),
                    other=0,
                )
                if BIAS == 1:
                    seen = seen & (bias != 0)
                else:
                    added = bias.to(tl.float32)
                    seen = seen & (added != float("-inf"))
                    score = score + added
            score = tl.where(seen, score, float("-inf"))
            higher = tl.maximum(peak, tl.max(score, axis=1))
            safe = tl.where(higher == float("-inf"), 0.0, higher)
            if BIAS == 2:
                alpha = tl.exp(peak - safe)
                p = tl.exp(score - safe[:, None])
            else:
                alpha = tl.exp2(peak - safe)
                p = tl.exp2(score - safe[:, None])
            acc = acc * alpha[:, None]
            if GUARD:  # noqa: SIM102 - the compiler takes no `and` of a constant and a number
                if bad > 0:
                    # NaN and infinities of value go only to the rows that see their key.
                    wide = v_tile.to(tl.float32)
                    finite = tl.abs(wide) < float("inf")
                    seeing = tl.where(seen, 1.0, 0.0).to(v_tile.dtype)
                    up = tl.where(finite | (wide < 0.0), 0.0, 1.0).to(v_tile.dtype)
                    acc = acc + tl.where(tl.dot(seeing, up) > 0.0, float("inf"), 0.0)
                    down = tl.where(finite | (wide > 0.0), 0.0, 1.0).to(v_tile.dtype)
                    acc = acc + tl.where(tl.dot(seeing, down) > 0.0, float("-inf"), 0.0)
                    v_tile = tl.where(finite, wide, 0.0).to(v_tile.dtype)
        else:
            k_tile = tl.load(k_base + first * k_step + k_local, mask=k_in, other=0.0)
            score = tl.dot(queries, tl.trans(k_tile))
            higher = tl.maximum(peak, tl.max(score, axis=1) * scale)
            safe = tl.where(higher == float("-inf"), 0.0, higher)
            alpha = tl.exp2(peak - safe)
            p = tl.exp2(score * scale - safe[:, None])
            acc = acc * alpha[:, None]
            v_tile = tl.load(v_base + first * v_step + v_local, mask=v_in, other=0.0)
        total = total * alpha + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc)
        peak = higher
    return acc, total, peak


@triton.jit(do_not_specialize=["L", "S", "H", "group", "blocks", "heads"])
def _attend(
    q,
    k,
    v,
    bias,
    out,
    L,
    S,
    H,
    group,
    blocks,
    heads,
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
    bias_b,
    bias_h,
    bias_l,
    bias_s,
    A: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    BIAS: tl.constexpr,
    GUARD: tl.constexpr,
    STAGES: tl.constexpr,
):
    pid = tl.program_id(0)
    if CAUSAL:
        bh = pid % heads
        block = blocks - 1 - pid // heads
    else:
        bh = pid // blocks
        block = pid % blocks
    h = bh % H
    b = (bh // H).to(tl.int64)
    hk = (h // group).to(tl.int64)
    hq = h.to(tl.int64)
    local = tl.arange(0, BLOCK_M)
    rows = block * BLOCK_M + local
    first = block.to(tl.int64) * BLOCK_M
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_DV)

    q_base = q + b * A * qb + hq * A * qh + first * (ql * A)
    k_base = k + b * A * kb + hk * A * kh
    v_base = v + b * A * vb + hk * A * vh
    bias_base = bias + b * bias_b + hq * bias_h

    queries = tl.load(
        q_base + (local[:, None] * (ql * A) + d[None, :]),
        mask=(rows[:, None] < L) & (d[None, :] < D),
        other=0.0,
    )
    queries = (queries.to(tl.float32) * sign).to(q.dtype.element_ty)

    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)

    if CAUSAL:
        full = tl.minimum(S, block * BLOCK_M) // BLOCK_N * BLOCK_N
        end = tl.minimum(S, block * BLOCK_M + BLOCK_M)
    else:
        full = S // BLOCK_N * BLOCK_N
        end = S
    if BIAS > 0:
        full = full * 0
    else:
        acc, total, peak = _walk(
            acc,
            total,
            peak,
            queries,
            k_base,
            v_base,
            bias_base,
            0,
            full,
            rows,
            L,
            S,
            scale,
            kn * A,
            vn * A,
            bias_l,
            bias_s,
            D,
            DV,
            BLOCK_D,
            BLOCK_DV,
            BLOCK_N,
            CAUSAL,
            BIAS,
            GUARD,
            False,
            STAGES,
        )
    acc, total, peak = _walk(
        acc,
        total,
        peak,
        queries,
        k_base,
        v_base,
        bias_base,
        full,
        end,
        rows,
        L,
        S,
        scale,
        kn * A,
        vn * A,
        bias_l,
        bias_s,
        D,
        DV,
        BLOCK_D,
        BLOCK_DV,
        BLOCK_N,
        CAUSAL,
        BIAS,
        GUARD,
        True,
        1,
    )

    nothing = total == 0.0
    result = acc / tl.where(nothing, 1.0, total)[:, None]
    result = tl.where(nothing[:, None], 0.0, result)
    o_base = out + b * A * ob + hq * A * oh + first * (ol * A)
    tl.store(
        o_base + (local[:, None] * (ol * A) + e[None, :]),
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
    STAGES: tl.constexpr,
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
    for start in tl.range(lo, hi, BLOCK_N, num_stages=STAGES):
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


def _four(t):
    while t.dim() < 4:
        t = t.unsqueeze(0)
    if t.dim() > 4:
        t = t.reshape(math.prod(t.shape[:-3]), *t.shape[-3:])
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
    if dropout_p != 0.0:
        raise NotImplementedError("dropout is not supported")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask and is_causal exclude each other")
    if query.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError("float16 and bfloat16 only")
    if key.dtype != query.dtype or value.dtype != query.dtype:
        raise TypeError("query, key and value must have one dtype")
    if query.dim() < 2 or key.dim() != query.dim() or value.dim() != query.dim():
        raise ValueError("query, key and value must have the same number of dimensions, at least 2")
    if not query.is_cuda or key.device != query.device or value.device != query.device:
        raise ValueError("query, key and value must be on one CUDA device")
    if key.shape[:-3] != query.shape[:-3] or value.shape[:-3] != query.shape[:-3]:
        raise ValueError("batch dimensions differ")
    if key.shape[-1] != query.shape[-1] or value.shape[-2] != key.shape[-2]:
        raise ValueError("shapes do not fit")

    q, k, v = _four(query), _four(key), _four(value)
    B, H, L, E = q.shape
    HKV, S = k.shape[1], k.shape[2]
    EV = v.shape[3]
    if v.shape[1] != HKV:
        raise ValueError("key and value must have the same number of heads")
    if query.dim() == 4 and H > 1 and L > 1 and q.stride(1) < q.stride(2):
        out = torch.empty((B, L, H, EV), dtype=query.dtype, device=query.device).transpose(1, 2)
    else:
        out = torch.empty((B, H, L, EV), dtype=query.dtype, device=query.device)
    final_shape = (*tuple(query.shape[:-1]), EV)

    if HKV != H and not (enable_gqa and HKV > 0 and H % HKV == 0):
        raise ValueError("the numbers of heads do not fit")
    if out.numel() == 0:
        return out if query.dim() == 4 else out.view(final_shape)
    if E == 0:
        raise ValueError("query has no features")
    if E > 256 or EV > 256:
        raise NotImplementedError("more than 256 features a head")
    group = H // HKV

    factor = 1.0 / math.sqrt(E) if scale is None else float(scale)
    sign = -1.0 if factor < 0 else 1.0
    factor = abs(factor)

    bias, bias_kind, bias_strides = q, 0, [0, 0, 0, 0]
    if attn_mask is not None:
        if attn_mask.device != query.device:
            raise ValueError("attn_mask must be on the device of query")
        if attn_mask.dtype == torch.bool:
            bias, bias_kind = attn_mask.view(torch.uint8), 1
        elif attn_mask.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            bias, bias_kind = attn_mask, 2
        else:
            raise TypeError("attn_mask must be bool or floating")
        bias = bias.expand((*tuple(query.shape[:-1]), S))
        while bias.dim() < 4:
            bias = bias.unsqueeze(0)
        if bias.dim() > 4:
            bias = bias.reshape(B, H, L, S)
        bias_strides = [step if size > 1 else 0 for step, size in zip(bias.stride(), bias.shape, strict=True)]
    if bias_kind != 2:
        factor = factor * LOG2E

    qs, ks, vs, outs = _strides(q), _strides(k), _strides(v), _strides(out)
    A = 8 if all(step % 8 == 0 for step in qs + ks + vs + outs) else 1
    qs, ks, vs, outs = ([step // A for step in steps] for steps in (qs, ks, vs, outs))
    BLOCK_D = max(16, triton.next_power_of_2(E))
    BLOCK_DV = max(16, triton.next_power_of_2(EV))

    if bias_kind == 0 and not is_causal and group * L <= 16:
        BLOCK_N = 64
        pairs = B * HKV
        tiles = triton.cdiv(S, BLOCK_N)
        splits = max(1, min(tiles, MAX_SPLITS, triton.cdiv(WANTED_PROGRAMS, pairs)))
        if pairs * splits >= 2**31 or B * H * L >= 2**31:
            raise ValueError("too many programs")
        if splits > 1:
            slots = pairs * splits * group * L
            part = torch.empty((slots, EV), dtype=torch.float32, device=query.device)
            stat = torch.empty((slots, 2), dtype=torch.float32, device=query.device)
        else:
            part = stat = torch.empty((2,), dtype=torch.float32, device=query.device)
        _few_rows[(pairs * splits,)](
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
            factor,
            sign,
            *qs,
            *ks,
            *vs,
            *outs,
            A=A,
            D=E,
            DV=EV,
            BLOCK_D=BLOCK_D,
            BLOCK_DV=BLOCK_DV,
            BLOCK_M=16,
            BLOCK_N=BLOCK_N,
            FINAL=splits == 1,
            STAGES=3,
            num_warps=4,
            num_stages=3,
        )
        if splits > 1:
            _join[(B * H * L,)](
                part,
                stat,
                out,
                L,
                H,
                HKV,
                group,
                splits,
                *outs,
                A=A,
                DV=EV,
                BLOCK_DV=BLOCK_DV,
                BLOCK_S=MAX_SPLITS,
                num_warps=4,
            )
    else:
        widest = max(BLOCK_D, BLOCK_DV)
        if widest <= 64:
            BLOCK_M, BLOCK_N, warps, stages = 128, 64, 4, 3
        elif widest <= 128:
            BLOCK_M, BLOCK_N, warps, stages = 128, 128, 8, 2
        else:
            BLOCK_M, BLOCK_N, warps, stages = 64, 64, 4, 2
        blocks = triton.cdiv(L, BLOCK_M)
        if blocks * B * H >= 2**31:
            raise ValueError("too many programs")
        causal = bool(is_causal)
        _attend[(blocks * B * H,)](
            q,
            k,
            v,
            bias,
            out,
            L,
            S,
            H,
            group,
            blocks,
            B * H,
            factor,
            sign,
            *qs,
            *ks,
            *vs,
            *outs,
            *bias_strides,
            A=A,
            D=E,
            DV=EV,
            BLOCK_D=BLOCK_D,
            BLOCK_DV=BLOCK_DV,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            CAUSAL=causal,
            BIAS=bias_kind,
            GUARD=causal or bias_kind > 0,
            STAGES=stages,
            num_warps=warps,
            num_stages=stages,
        )
    return out if query.dim() == 4 else out.view(final_shape)
