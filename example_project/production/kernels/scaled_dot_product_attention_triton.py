import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_LOG2E = 1.4426950408889634
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_LIMIT = 2**31 - 65536


@triton.jit
def _tile(src, b, h, row, rows, s_b, s_h, s_r, s_c, WIDTH: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr,
          TMA: tl.constexpr):
    # rows row .. row + BLOCK of one head, zeros outside of the tensor
    if TMA:
        tile = src.load([b, h, row, 0]).reshape([BLOCK, D])
    else:
        index = row + tl.arange(0, BLOCK)
        column = tl.arange(0, D)
        base = src + b.to(tl.int64) * s_b + h.to(tl.int64) * s_h
        place = base + index.to(tl.int64)[:, None] * s_r + column.to(tl.int64)[None, :] * s_c
        tile = tl.load(place, mask=(index < rows)[:, None] & (column < WIDTH)[None, :], other=0.0)
    return tile


@triton.jit
def _walk(acc, l_i, m_i, qt, k, v, mask_base, b, hk, offs_m, lo, hi, L, S, scale,
          k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, a_l, a_s,
          E: tl.constexpr, EV: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
          TMA: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, KIND: tl.constexpr, PRE: tl.constexpr):
    for start in range(lo, hi, BLOCK_N):
        kt = _tile(k, b, hk, start, S, k_b, k_h, k_s, k_d, E, BLOCK_N, D, TMA)
        s = tl.dot(qt, tl.trans(kt), input_precision="ieee")
        if PRE:
            s = s * scale
        if MASKED:
            offs_n = start + tl.arange(0, BLOCK_N)
            seen = (offs_n < S)[None, :]
            if CAUSAL:
                seen = seen & (offs_m[:, None] >= offs_n[None, :])
            if KIND != 0:
                place = mask_base + offs_m.to(tl.int64)[:, None] * a_l + offs_n.to(tl.int64)[None, :] * a_s
                inside = (offs_m < L)[:, None] & (offs_n < S)[None, :]
                if KIND == 1:
                    seen = seen & (tl.load(place, mask=inside, other=0) != 0)
                else:
                    bias = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
                    seen = seen & (bias != float("-inf"))
                    s = s + bias
            s = tl.where(seen, s, float("-inf"))
        if PRE:
            m_new = tl.maximum(m_i, tl.max(s, 1))
            m_ref = tl.where(m_new == float("-inf"), 0.0, m_new)
            alpha = tl.exp2((m_i - m_ref) * 1.4426950408889634)
            p = tl.exp2((s - m_ref[:, None]) * 1.4426950408889634)
        else:
            m_new = tl.maximum(m_i, tl.max(s, 1) * scale)
            m_ref = tl.where(m_new == float("-inf"), 0.0, m_new)
            alpha = tl.exp2(m_i - m_ref)
            p = tl.exp2(s * scale - m_ref[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        vt = _tile(v, b, hk, start, S, v_b, v_h, v_s, v_d, EV, BLOCK_N, DV, TMA)
        acc = tl.dot(p.to(vt.dtype), vt, acc, input_precision="ieee")
        m_i = m_new
    return acc, l_i, m_i


@triton.jit(do_not_specialize=["L", "S", "heads_all", "group"])
def _attention(q, k, v, k_ptr, v_ptr, mask, out, scale, L, S, heads_all, group, H, REP,
               q_b, q_h, q_l, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, a_b, a_h, a_l, a_s, o_b, o_h, o_l,
               E: tl.constexpr, EV: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
               D: tl.constexpr, DV: tl.constexpr, TMA: tl.constexpr, CAUSAL: tl.constexpr, KIND: tl.constexpr,
               PRE: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    # groups of heads whose keys and values fit the L2; within one, all heads of a row tile, the longest tile first
    pid = tl.program_id(0)
    tiles = tl.cdiv(L, BLOCK_M)
    which = pid // (group * tiles)
    first = which * group
    size = tl.minimum(heads_all - first, group)
    rest = pid - which * (group * tiles)
    head = first + rest % size
    tile = rest // size
    if CAUSAL:
        tile = tiles - 1 - tile
    b = head // H
    h = head % H
    hk = h // REP
    row = tile * BLOCK_M
    offs_m = row + tl.arange(0, BLOCK_M)
    mask_base = mask + b.to(tl.int64) * a_b + h.to(tl.int64) * a_h

    qt = _tile(q, b, h, row, L, q_b, q_h, q_l, q_d, E, BLOCK_M, D, TMA)
    acc = tl.zeros([BLOCK_M, DV], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)

    end = S
    if CAUSAL:
        end = tl.minimum(S, row + BLOCK_M)
    middle = 0
    if FIRST:
        # tiles of which every row sees every key
        full = S
        if CAUSAL:
            full = tl.minimum(S, row)
        middle = full // BLOCK_N * BLOCK_N
        acc, l_i, m_i = _walk(acc, l_i, m_i, qt, k, v, mask_base, b, hk, offs_m, 0, middle, L, S, scale,
                              k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, a_l, a_s,
                              E, EV, BLOCK_N, D, DV, TMA, False, False, 0, PRE)
    if SECOND:
        acc, l_i, m_i = _walk(acc, l_i, m_i, qt, k, v, mask_base, b, hk, offs_m, middle, end, L, S, scale,
                              k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, a_l, a_s,
                              E, EV, BLOCK_N, D, DV, TMA, True, CAUSAL, KIND, PRE)

    if CAUSAL or KIND != 0:
        # 0 * NaN and 0 * infinity of keys that a row does not see must not reach it: such tiles are summed again
        spoilt = tl.max(tl.max((acc != acc).to(tl.int32), 1), 0)
        if spoilt != 0:
            m_ref = tl.where(m_i == float("-inf"), 0.0, m_i)
            column = tl.arange(0, D).to(tl.int64)
            column_v = tl.arange(0, DV).to(tl.int64)
            k_base = k_ptr + b.to(tl.int64) * k_b + hk.to(tl.int64) * k_h
            v_base = v_ptr + b.to(tl.int64) * v_b + hk.to(tl.int64) * v_h
            q32 = _tile(q, b, h, row, L, q_b, q_h, q_l, q_d, E, BLOCK_M, D, TMA).to(tl.float32)
            acc = tl.zeros([BLOCK_M, DV], dtype=tl.float32)
            for j in tl.range(0, end, num_stages=1):
                far = tl.zeros([1], dtype=tl.int64) + j
                krow = tl.load(k_base + far * k_s + column * k_d, mask=column < E, other=0.0).to(tl.float32)
                vrow = tl.load(v_base + far * v_s + column_v * v_d, mask=column_v < EV, other=0.0).to(tl.float32)
                s = tl.sum(q32 * krow[None, :], 1) * scale
                seen = offs_m < L
                if CAUSAL:
                    seen = seen & (offs_m >= j)
                if KIND != 0:
                    place = mask_base + offs_m.to(tl.int64) * a_l + far * a_s
                    if KIND == 1:
                        seen = seen & (tl.load(place, mask=offs_m < L, other=0) != 0)
                    else:
                        bias = tl.load(place, mask=offs_m < L, other=float("-inf")).to(tl.float32)
                        seen = seen & (bias != float("-inf"))
                        s = s + bias
                if PRE:
                    p = tl.exp2((s - m_ref) * 1.4426950408889634)
                else:
                    p = tl.exp2(s - m_ref)
                acc += tl.where(seen[:, None], p[:, None] * vrow[None, :], 0.0)

    result = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    cols = tl.arange(0, DV)
    place = (out + b.to(tl.int64) * o_b + h.to(tl.int64) * o_h + offs_m.to(tl.int64)[:, None] * o_l + cols[None, :])
    tl.store(place, result.to(out.dtype.element_ty), mask=(offs_m < L)[:, None] & (cols < EV)[None, :])


@triton.jit(do_not_specialize=["L", "S", "chunk", "splits", "stats"])
def _few(q, k, v, out, part, scale, L, S, chunk, splits, stats, H, HK, REP,
         q_b, q_h, q_l, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, o_b, o_h, o_l,
         E: tl.constexpr, EV: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
         D: tl.constexpr, DV: tl.constexpr, SPLIT: tl.constexpr):
    # all queries of all heads that share a key head, against one chunk of the keys
    pid = tl.program_id(0)
    unit = pid // splits
    piece = pid % splits
    b = (unit // HK).to(tl.int64)
    hk = (unit % HK).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    inside = r < REP * L
    head = hk * REP + r // L
    line = (r % L).to(tl.int64)
    column = tl.arange(0, D)
    cols = tl.arange(0, DV)
    qt = tl.load(q + b * q_b + (head * q_h + line * q_l)[:, None] + column.to(tl.int64)[None, :] * q_d,
                 mask=inside[:, None] & (column < E)[None, :], other=0.0)
    k_base = k + b * k_b + hk * k_h
    v_base = v + b * v_b + hk * v_h
    acc = tl.zeros([BLOCK_M, DV], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    lo = piece * chunk
    hi = tl.minimum(S, lo + chunk)
    for start in range(lo, hi, BLOCK_N):
        index = start + tl.arange(0, BLOCK_N)
        near = index < hi
        far = index.to(tl.int64)
        kt = tl.load(k_base + far[:, None] * k_s + column.to(tl.int64)[None, :] * k_d,
                     mask=near[:, None] & (column < E)[None, :], other=0.0)
        vt = tl.load(v_base + far[:, None] * v_s + cols.to(tl.int64)[None, :] * v_d,
                     mask=near[:, None] & (cols < EV)[None, :], other=0.0)
        s = tl.dot(qt, tl.trans(kt), input_precision="ieee") * scale
        s = tl.where(near[None, :], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        m_ref = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2(m_i - m_ref)
        p = tl.exp2(s - m_ref[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(vt.dtype), vt, acc * alpha[:, None], input_precision="ieee")
        m_i = m_new
    if SPLIT:
        slot = ((b * H + head) * L + line) * splits + piece
        tl.store(part + slot[:, None] * EV + cols[None, :], acc, mask=inside[:, None] & (cols < EV)[None, :])
        tl.store(part + stats + slot * 2, m_i, mask=inside)
        tl.store(part + stats + slot * 2 + 1, l_i, mask=inside)
    else:
        result = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
        place = out + b * o_b + (head * o_h + line * o_l)[:, None] + cols[None, :]
        tl.store(place, result.to(out.dtype.element_ty), mask=inside[:, None] & (cols < EV)[None, :])


@triton.jit(do_not_specialize=["L", "splits", "stats"])
def _join(part, out, L, splits, stats, H, o_b, o_h, o_l,
          EV: tl.constexpr, DV: tl.constexpr, ALL: tl.constexpr, STEP: tl.constexpr):
    # the pieces of one row, in the order of their keys
    pid = tl.program_id(0)
    line = (pid % L).to(tl.int64)
    head = pid // L
    b = (head // H).to(tl.int64)
    h = (head % H).to(tl.int64)
    slot = pid.to(tl.int64) * splits
    every = tl.arange(0, ALL)
    m_all = tl.load(part + stats + (slot + every) * 2, mask=every < splits, other=float("-inf"))
    m = tl.max(m_all, 0)
    m = tl.where(m == float("-inf"), 0.0, m)
    l_all = tl.load(part + stats + (slot + every) * 2 + 1, mask=every < splits, other=0.0)
    total = tl.sum(tl.exp2(m_all - m) * l_all, 0)
    cols = tl.arange(0, DV)
    acc = tl.zeros([DV], dtype=tl.float32)
    for start in range(0, splits, STEP):
        index = start + tl.arange(0, STEP)
        weight = tl.exp2(tl.load(part + stats + (slot + index) * 2, mask=index < splits, other=float("-inf")) - m)
        tile = tl.load(part + (slot + index)[:, None] * EV + cols[None, :],
                       mask=(index < splits)[:, None] & (cols < EV)[None, :], other=0.0)
        acc += tl.sum(weight[:, None] * tile, 0)
    result = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out + b * o_b + h * o_h + line * o_l + cols, result.to(out.dtype.element_ty), mask=cols < EV)


def _describe(tensor, shape, strides, item, block):
    """A descriptor for the tensor memory accelerator, or None where it cannot take the tensor."""
    if strides[3] != 1 or tensor.data_ptr() % 16:
        return None
    fixed = []
    for length, stride in zip(shape[:3], strides[:3]):
        if length == 1:
            stride = 64
        elif stride <= 0 or (stride * item) % 16 or stride * item >= 2**40:
            return None
        fixed.append(stride)
    fixed.append(1)
    return TensorDescriptor(tensor, shape, fixed, block)


def _general(query, key, value, attn_mask, enable_gqa):
    """Everything as four dimensions, by views wherever they can be had."""
    flat = query.dim() == 2 and key.dim() == 2 and value.dim() == 2
    if flat and attn_mask is not None and attn_mask.dim() > 2:
        query = query.unsqueeze(0)
        flat = False
    q, k, v = (x.unsqueeze(0) if x.dim() == 2 else x for x in (query, key, value))
    H, HK = q.shape[-3], k.shape[-3]
    if enable_gqa:
        if HK != v.shape[-3] or HK == 0 or H % HK:
            raise RuntimeError("the number of query heads must be a multiple of that of key and value heads")
    else:
        H = HK = torch.broadcast_shapes(q.shape[-3:-2], k.shape[-3:-2], v.shape[-3:-2])[0]
    batch = tuple(torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3]))
    count = math.prod(batch)
    L, S = q.shape[-2], k.shape[-2]
    q = q.expand(*batch, H, L, q.shape[-1]).reshape(count, H, L, q.shape[-1])
    k = k.expand(*batch, HK, S, k.shape[-1]).reshape(count, HK, S, k.shape[-1])
    v = v.expand(*batch, HK, S, v.shape[-1]).reshape(count, HK, S, v.shape[-1])
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*batch, H, L, S).reshape(count, H, L, S)
    shape = (L, v.shape[-1]) if flat else (*batch, H, L, v.shape[-1])
    return q, k, v, attn_mask, shape


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask=None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale=None,
                                 enable_gqa: bool = False) -> torch.Tensor:
    dtype = query.dtype
    if dtype not in _FLOATS or key.dtype != dtype or value.dtype != dtype:
        raise TypeError("query, key and value must have one dtype of float16, bfloat16 and float32")
    if dropout_p != 0.0:
        raise NotImplementedError("dropout is not computed here")
    if not (query.is_cuda and key.device == query.device and value.device == query.device):
        raise ValueError("the tensors must lie on one CUDA device")
    if attn_mask is not None:
        if is_causal:
            raise RuntimeError("attn_mask must not be set together with is_causal")
        if attn_mask.dtype not in _FLOATS and attn_mask.dtype != torch.bool:
            raise TypeError("attn_mask must be of bool or of floats")
        if attn_mask.device != query.device:
            raise ValueError("attn_mask must lie on the device of query")
    if query.dim() < 2 or key.dim() < 2 or value.dim() < 2:
        raise ValueError("query, key and value need two dimensions at least")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError("the sizes of query, key and value do not fit")

    qs, ks, vs = query.shape, key.shape, value.shape
    if not (len(qs) == 4 and len(ks) == 4 and len(vs) == 4 and qs[0] == ks[0] == vs[0] and ks[1] == vs[1]
            and (qs[1] == ks[1] or (enable_gqa and ks[1] and qs[1] % ks[1] == 0))):
        q, k, v, a, shape = _general(query, key, value, attn_mask, enable_gqa)
        return scaled_dot_product_attention(q, k, v, a, 0.0, is_causal, scale, enable_gqa).reshape(shape)

    B, H, L, E = qs
    HK, S, EV = ks[1], ks[2], vs[3]
    q_st, k_st, v_st = query.stride(), key.stride(), value.stride()
    if q_st[1] < q_st[2] and L > 1 and H > 1:
        out = torch.empty((B, L, H, EV), dtype=dtype, device=query.device).transpose(1, 2)
    else:
        out = torch.empty((B, H, L, EV), dtype=dtype, device=query.device)
    if out.numel() == 0:
        return out
    if E == 0 or E > 512 or EV > 512:
        raise NotImplementedError("head sizes of 1 to 512 are computed here")
    if L > _LIMIT or S > _LIMIT or B * H > _LIMIT:
        raise NotImplementedError("sizes of more than 31 bits are not computed here")
    o_st = out.stride()
    scale = 1.0 / math.sqrt(E) if scale is None else float(scale)
    rep = H // HK
    wide = dtype == torch.float32
    item = 4 if wide else 2
    D = max(16, triton.next_power_of_2(E))
    DV = max(16, triton.next_power_of_2(EV))
    biggest = max(D, DV)

    rows = rep * L
    if attn_mask is None and not is_causal and L <= 16 and rows <= 64 and biggest <= 256:
        block_m = 16 if rows <= 16 else triton.next_power_of_2(rows)
        block_n = 32 if wide or biggest > 128 else 64
        units = B * HK
        pieces = min(max(1, 264 // units), 1 + (S - 1) // block_n if S else 1)
        chunk = max(1, triton.cdiv(triton.cdiv(S, pieces), block_n)) * block_n
        splits = max(1, triton.cdiv(S, chunk))
        if units * splits > _LIMIT or B * H * L > _LIMIT:
            raise NotImplementedError("sizes of more than 31 bits are not computed here")
        lines = B * H * L
        stats = lines * splits * EV
        part = torch.empty(stats + 2 * lines * splits, dtype=torch.float32, device=query.device) if splits > 1 else out
        _few[(units * splits,)](query, key, value, out, part, scale * _LOG2E, L, S, chunk, splits, stats, H, HK, rep,
                                *q_st, *k_st, *v_st, o_st[0], o_st[1], o_st[2],
                                E=E, EV=EV, BLOCK_M=block_m, BLOCK_N=block_n, D=D, DV=DV, SPLIT=splits > 1,
                                num_warps=4, num_stages=2 if wide else 3)
        if splits > 1:
            every = triton.next_power_of_2(splits)
            _join[(lines,)](part, out, L, splits, stats, H, o_st[0], o_st[1], o_st[2],
                            EV=EV, DV=DV, ALL=every, STEP=min(64 if DV <= 128 else 32, every), num_warps=4)
        return out

    if is_causal and S > L:
        S = L  # no row sees the keys behind
    kind = 0
    mask = out
    a_st = (0, 0, 0, 0)
    if attn_mask is not None:
        mask = attn_mask.expand(B, H, L, S)
        a_st = mask.stride()
        kind = 2
        if mask.dtype == torch.bool:
            mask = mask.view(torch.uint8)
            kind = 1
    pre = kind != 0 or not (1e-20 < scale < 1e20)

    q, k, v = query, key, value
    tma = False
    more = {}
    if not wide and kind == 0 and S > 0 and biggest <= 256:
        if biggest <= 64:
            block_m, block_n, warps, stages = 128, 128, 8, 2
            more = {"maxnreg": 128}
        elif biggest == 128:
            block_m, block_n, warps, stages = 128, 128, 8, 2
        else:
            block_m, block_n, warps, stages = 128, 64, 8, 2
        dq = _describe(query, [B, H, L, E], q_st, item, [1, 1, block_m, D])
        dk = dq and _describe(key, [B, HK, S, E], k_st, item, [1, 1, block_n, D])
        dv = dk and _describe(value, [B, HK, S, EV], v_st, item, [1, 1, block_n, DV])
        if dv is not None:
            q, k, v = dq, dk, dv
            tma = True
    if not tma:
        more = {}
        warps, stages = 4, 2
        if wide:
            block_m = block_n = 32 if biggest <= 256 else 16
            stages = 1
        elif biggest <= 128:
            block_m, block_n = 64, 64
        elif biggest <= 256:
            block_m, block_n = 64, 32
        else:
            block_m, block_n, stages = 16, 32, 1
    tiles = triton.cdiv(L, block_m)
    heads_all = B * H
    if tiles * heads_all > _LIMIT:
        raise NotImplementedError("sizes of more than 31 bits are not computed here")
    group = 1
    if is_causal:
        group = min(heads_all, max(1, 36 * 2**20 // max(1, S * (E + EV) * item)) * rep)
    second = is_causal or kind != 0 or S % block_n != 0
    first = kind == 0 and (is_causal or not second or S > 4 * block_n)
    _attention[(tiles * heads_all,)](q, k, v, key, value, mask, out, scale if pre else scale * _LOG2E,
                                     L, S, heads_all, group, H, rep, *q_st, *k_st, *v_st, *a_st,
                                     o_st[0], o_st[1], o_st[2],
                                     E=E, EV=EV, BLOCK_M=block_m, BLOCK_N=block_n, D=D, DV=DV, TMA=tma,
                                     CAUSAL=bool(is_causal), KIND=kind, PRE=pre, FIRST=first, SECOND=second,
                                     num_warps=warps, num_stages=stages, **more)
    return out
