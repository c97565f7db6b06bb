import torch
import triton
import triton.language as tl

_ITEM = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 4}
_PARTS = 128


@triton.jit(do_not_specialize=["rows", "ignore_index"])
def _divisor(target, weight, partial, rows, width, ignore_index, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    # The number (or weight) of the targets that are not ignored, in pieces of a fixed order.
    pid = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(pid * BLOCK, rows, tl.num_programs(0) * BLOCK):
        i = start + lane
        inside = i < rows
        t = tl.load(target + i, mask=inside, other=0).to(tl.int64)
        live = inside & (t != ignore_index)
        if HAS_WEIGHT:
            known = live & (t >= 0) & (t < width)
            total += tl.load(weight + t, mask=known, other=0.0).to(tl.float32)
        else:
            total += tl.where(live, 1.0, 0.0)
    tl.store(partial + pid, tl.sum(total, axis=0), mask=pid >= 0)


@triton.jit
def _merge(m, s, v):
    # Lane by lane: running maximum m and sum s, with the rows of v; -inf is nothing, NaN stays in the sum.
    top = tl.maximum(m, tl.max(v, axis=0))
    safe = tl.where(top == float("-inf"), 0.0, top)
    s = s * tl.exp(m - safe) + tl.sum(tl.exp(v - safe[None, :]), axis=0)
    return top, s


@triton.jit
def _wanted(target, weight, offset, column, mask, keep, spread, HAS_WEIGHT: tl.constexpr, PROB: tl.constexpr):
    # w_j y'_j of probabilities; w_j of smoothed indices.
    if PROB:
        y = tl.load(target + offset, mask=mask, other=0.0).to(tl.float32) * keep + spread
        y = tl.where(mask, y, 0.0)
        if HAS_WEIGHT:
            y = y * tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    else:
        if HAS_WEIGHT:
            y = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
        else:
            y = tl.where(mask, 1.0, 0.0)
    return y


@triton.jit(do_not_specialize=["parts", "rows", "ignore_index"])
def _gradient(x, out, target, weight, grad, partial, parts, rows, width, ignore_index, keep, spread,
              HAS_WEIGHT: tl.constexpr, PROB: tl.constexpr, SMOOTH: tl.constexpr, REDUCTION: tl.constexpr,
              VEC: tl.constexpr, PARTS: tl.constexpr, R: tl.constexpr, L: tl.constexpr):
    TILE: tl.constexpr = R * L
    EDGE: tl.constexpr = 2 * VEC
    MIXED: tl.constexpr = PROB or SMOOTH
    divisor = 1.0
    if REDUCTION == 2:
        if PROB:
            divisor = rows.to(tl.float32)
        else:
            p = tl.arange(0, PARTS)
            divisor = tl.sum(tl.load(partial + p, mask=p < parts, other=0.0).to(tl.float32), axis=0)
    inner = tl.arange(0, R)[:, None] * L + tl.arange(0, L)[None, :]
    lane = tl.arange(0, EDGE)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        # A row is a head and a tail of less than 16 bytes, and a body of aligned groups of 16 bytes.
        begin = row.to(tl.int64) * width
        body = (begin + (VEC - 1)) // VEC * VEC
        head = tl.minimum(body - begin, width).to(tl.int32)
        length = (width - head) // VEC * VEC
        edge = tl.where(lane < VEC, lane, head + length + lane - VEC)
        at_edge = tl.where(lane < VEC, lane < head, edge < width)
        ve = tl.load(x + begin + edge, mask=at_edge, other=float("-inf")).to(tl.float32)

        m = tl.full([L], float("-inf"), tl.float32)
        s = tl.zeros([L], tl.float32)
        wanted = tl.zeros([L], tl.float32)
        tiles = (length + TILE - 1) // TILE
        for tile in range(0, tiles):
            k = tile * TILE + inner
            mask = k < length
            v = tl.load(x + body + k, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
            m, s = _merge(m, s, v)
            if MIXED:
                wanted += tl.sum(_wanted(target, weight, body + k, head + k, mask, keep, spread, HAS_WEIGHT, PROB),
                                 axis=0)
        top = tl.maximum(tl.max(m, axis=0), tl.max(ve, axis=0))
        safe = tl.where(top == float("-inf"), 0.0, top)
        total = tl.sum(s * tl.exp(m - safe), axis=0) + tl.sum(tl.exp(ve - safe), axis=0)
        mass = 0.0
        if MIXED:
            we = _wanted(target, weight, begin + edge, edge, at_edge, keep, spread, HAS_WEIGHT, PROB)
            mass = tl.sum(wanted, axis=0) + tl.sum(we, axis=0)

        exists = row < rows
        if REDUCTION == 0:
            g = tl.load(grad + row.to(tl.int64), mask=exists, other=0.0).to(tl.float32)
        else:
            g = tl.load(grad, mask=exists, other=0.0).to(tl.float32) / divisor
        # grad_j = scale * exp(x_j - max) - hot * [j is the target] - mix * wanted_j
        if PROB:
            scale = g * mass / total
            hot = 0.0
            mix = g
            place = -1
        else:
            t = tl.load(target + row.to(tl.int64), mask=exists, other=0).to(tl.int64)
            live = t != ignore_index
            known = live & (t >= 0) & (t < width)
            hot = g * keep
            if HAS_WEIGHT:
                hot = hot * tl.load(weight + t, mask=known, other=0.0).to(tl.float32)
            coefficient = hot
            mix = 0.0
            if SMOOTH:
                coefficient = coefficient + g * spread * mass
                mix = tl.where(live, g * spread, 0.0)
            hot = tl.where(live, hot, 0.0)
            scale = tl.where(live, coefficient, 0.0) / total
            place = tl.where(known, t, -1).to(tl.int32)

        r = tl.exp(ve - safe) * scale
        if not PROB:
            r = tl.where(edge == place, r - hot, r)
        if MIXED:
            r = tl.where(mix == 0.0, r, r - mix * we)
        tl.store(out + begin + edge, r.to(out.dtype.element_ty), mask=at_edge)
        for back in range(0, tiles):
            k = (tiles - 1 - back) * TILE + inner
            mask = k < length
            v = tl.load(x + body + k, mask=mask, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
            r = tl.exp(v - safe) * scale
            if not PROB:
                r = tl.where(head + k == place, r - hot, r)
            if MIXED:
                w = _wanted(target, weight, body + k, head + k, mask, keep, spread, HAS_WEIGHT, PROB)
                r = tl.where(mix == 0.0, r, r - mix * w)
            tl.store(out + body + k, r.to(out.dtype.element_ty), mask=mask, cache_modifier=".cs")


def _settings(width, vector):
    # 16 elements of a thread and tile; one program an SM for long rows, so that the rows under way stay in L2.
    if width >= 16384:
        warps, resident = 32, 1
    elif width >= 2048:
        warps, resident = 8, 6
    elif width >= 512:
        warps, resident = 4, 12
    else:
        warps, resident = 1, 32
    lanes = 32 * warps * vector
    several = max(1, min(16 // vector, triton.next_power_of_2(width) // lanes))
    return {"R": several, "L": lanes, "num_warps": warps}, resident


def _sms(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def cross_entropy_backward(grad_output, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
                           reduction="mean", label_smoothing=0.0):
    if size_average is not None or reduce is not None:
        averaged = True if size_average is None else size_average
        reduced = True if reduce is None else reduce
        reduction = ("mean" if averaged else "sum") if reduced else "none"
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    for each in (grad_output, input) if weight is None else (grad_output, input, weight):
        if each.dtype not in _ITEM:
            raise TypeError(f"cross_entropy of {each.dtype} is not supported")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be between 0.0 and 1.0, got {label_smoothing}")
    axis = 1 if input.dim() > 1 else 0
    moved = input.movedim(axis, -1) if input.dim() > 2 else input
    width = input.shape[axis]
    expected = tuple(moved.shape[:-1])
    prob = target.dtype.is_floating_point
    if prob:
        if target.shape != input.shape:
            raise ValueError("probabilities need the shape of the input")
        if target.dtype not in _ITEM:
            raise TypeError(f"targets of {target.dtype} are not supported")
        goal = target.movedim(axis, -1) if target.dim() > 2 else target
    else:
        if tuple(target.shape) != expected:
            raise ValueError(f"target of shape {tuple(target.shape)}, expected {expected}")
        if target.dtype not in (torch.int64, torch.uint8, torch.int32):
            raise TypeError(f"targets of {target.dtype} are not supported")
        goal = target
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != width):
        raise ValueError("weight needs one number for each class")
    if reduction == "none":
        if tuple(grad_output.shape) != expected:
            raise ValueError(f"grad_output of shape {tuple(grad_output.shape)}, expected {expected}")
    elif grad_output.numel() != 1:
        raise ValueError("grad_output is not a scalar")
    x = moved.contiguous()
    out = torch.empty(moved.shape, dtype=input.dtype, device=input.device)
    if out.numel():
        if width > 2147000000:
            raise ValueError("a row of 2^31 classes is not supported")
        rows = x.numel() // width
        goal = goal.contiguous()
        grad = grad_output.contiguous()
        if weight is not None:
            weight = weight.contiguous()
        partial, parts = grad, 1
        if reduction == "mean" and not prob:
            parts = min(triton.cdiv(rows, 1024), _PARTS)
            partial = torch.empty(parts, dtype=torch.float32, device=x.device)
            _divisor[(parts,)](goal, x if weight is None else weight, partial, rows, width, ignore_index,
                               HAS_WEIGHT=weight is not None, BLOCK=1024, num_warps=4)
        vector = 16 // _ITEM[x.dtype]
        settings, resident = _settings(width, vector)
        _gradient[(min(rows, _sms(x.device) * resident),)](
            x, out, goal, x if weight is None else weight, grad, partial, parts, rows, width, ignore_index,
            1.0 - label_smoothing, label_smoothing / width,
            HAS_WEIGHT=weight is not None, PROB=prob, SMOOTH=label_smoothing > 0.0,
            REDUCTION=("none", "sum", "mean").index(reduction), VEC=vector, PARTS=_PARTS, **settings)
    return out.movedim(-1, axis).contiguous() if input.dim() > 2 else out
