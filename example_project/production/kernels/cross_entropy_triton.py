import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "inner", "classes", "ignore_index", "keep", "smooth"])
def _rows_general(
    x,
    target,
    weight,
    loss,
    norm,
    rows,
    inner,
    classes,
    x_n,
    x_c,
    x_d,
    t_n,
    t_c,
    t_d,
    w_stride,
    ignore_index,
    keep,
    smooth,
    WEIGHTED: tl.constexpr,
    PROBABILITIES: tl.constexpr,
    WALK: tl.constexpr,
    REDUCED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # any strides, smoothed targets and probabilities: a second walk over the row, from the L2
    row = tl.program_id(0).to(tl.int64)
    n = row // inner
    d = row % inner
    x_row = x + n * x_n + d * x_d
    t_row = target + n * t_n + d * t_d
    if PROBABILITIES:
        count = classes
    else:
        t = tl.load(t_row, mask=row < rows, other=0).to(tl.int64)
        live = t != ignore_index
        count = tl.where(live, classes, 0)
    lane = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), -3.4028234663852886e38, tl.float32)
    s = tl.zeros((BLOCK,), tl.float32)
    for c in range(0, count, BLOCK):
        column = c + lane
        v = tl.load(x_row + column.to(tl.int64) * x_c, mask=column < count, other=float("-inf")).to(
            tl.float32
        )
        grown = tl.maximum(m, v)
        s = s * tl.exp(m - grown) + tl.exp(v - grown)
        m = grown
    top = tl.max(m, axis=0)
    log_sum = tl.log(tl.sum(s * tl.exp(m - top), axis=0))
    if WALK:
        acc = tl.zeros((BLOCK,), tl.float32)
        for c in range(0, count, BLOCK):
            column = c + lane
            inside = column < count
            at = column.to(tl.int64)
            v = tl.load(x_row + at * x_c, mask=inside, other=0.0).to(tl.float32)
            share = tl.zeros((BLOCK,), tl.float32) + smooth
            if PROBABILITIES:
                share += tl.load(t_row + at * t_c, mask=inside, other=0.0).to(tl.float32) * keep
            if WEIGHTED:
                share *= tl.load(weight + at * w_stride, mask=inside, other=0.0).to(tl.float32)
            acc += tl.where(inside, share * ((v - top) - log_sum), 0.0)
        value = -tl.sum(acc, axis=0)
    else:
        value = tl.zeros((), tl.float32)
    if PROBABILITIES:
        factor = tl.full((), 1.0, tl.float32)
    else:
        known = live & (t >= 0) & (t < classes)
        picked = tl.load(x_row + t * x_c, mask=known, other=float("nan")).to(tl.float32)
        if WEIGHTED:
            factor = tl.load(weight + t * w_stride, mask=known, other=0.0).to(tl.float32)
        else:
            factor = tl.full((), 1.0, tl.float32)
        value += keep * (factor * ((top - picked) + log_sum))
        value = tl.where(live, value, 0.0)
        factor = tl.where(live, factor, 0.0)
    tl.store(loss + row, value.to(loss.dtype.element_ty), mask=row < rows)
    if REDUCED:
        tl.store(norm + row, factor, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _total(loss, norm, out, rows, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    a = tl.zeros((BLOCK,), tl.float32)
    b = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, BLOCK):
        inside = first + lane < rows
        a += tl.load(loss + first + lane, mask=inside, other=0.0)
        if MEAN:
            b += tl.load(norm + first + lane, mask=inside, other=0.0)
    result = tl.sum(a, axis=0)
    if MEAN:
        result = tl.div_rn(result, tl.sum(b, axis=0))
    tl.store(out, result.to(out.dtype.element_ty), mask=rows >= 0)


@triton.jit(do_not_specialize=["rows", "classes", "ignore_index"])
def _rows_online(
    x,
    target,
    weight,
    loss,
    norm,
    rows,
    classes,
    x_stride,
    t_stride,
    w_stride,
    ignore_index,
    WEIGHTED: tl.constexpr,
    REDUCED: tl.constexpr,
    VEC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    t = tl.load(target + row * t_stride, mask=row < rows, other=0).to(tl.int64)
    live = t != ignore_index
    start = row * x_stride
    end = start + tl.where(live, classes, 0)
    # [first, last) is what 16-byte loads can take; before and after it are less than VEC elements each
    first = (start + (VEC - 1)) // VEC * VEC
    last = end // VEC * VEC
    head_end = tl.minimum(first, end)
    tail_start = tl.maximum(last, head_end)
    body = (last - first).to(tl.int32) // VEC * VEC
    lane = tl.arange(0, BLOCK)
    at_head = start + lane
    at_tail = tail_start + (lane - VEC)
    in_head = (lane < VEC) & (at_head < head_end)
    in_tail = (lane >= VEC) & (lane < 2 * VEC) & (at_tail < end)
    edge = tl.load(
        x + tl.where(lane < VEC, at_head, at_tail), mask=in_head | in_tail, other=float("-inf")
    ).to(tl.float32)
    # each lane has its own maximum (finite: -inf - -inf is no number) and sum; NaN stays in the sum
    m = tl.full((BLOCK,), -3.4028234663852886e38, tl.float32)
    s = tl.zeros((BLOCK,), tl.float32)
    x_body = x + first
    for c in range(0, body, 4 * BLOCK):
        o0 = c + lane
        o1 = o0 + BLOCK
        o2 = o0 + 2 * BLOCK
        o3 = o0 + 3 * BLOCK
        v0 = tl.load(x_body + o0, mask=o0 < body, other=float("-inf"), eviction_policy="evict_first")
        v1 = tl.load(x_body + o1, mask=o1 < body, other=float("-inf"), eviction_policy="evict_first")
        v2 = tl.load(x_body + o2, mask=o2 < body, other=float("-inf"), eviction_policy="evict_first")
        v3 = tl.load(x_body + o3, mask=o3 < body, other=float("-inf"), eviction_policy="evict_first")
        v0 = v0.to(tl.float32)
        v1 = v1.to(tl.float32)
        v2 = v2.to(tl.float32)
        v3 = v3.to(tl.float32)
        grown = tl.maximum(m, tl.maximum(tl.maximum(v0, v1), tl.maximum(v2, v3)))
        s = s * tl.exp(m - grown) + (
            (tl.exp(v0 - grown) + tl.exp(v1 - grown)) + (tl.exp(v2 - grown) + tl.exp(v3 - grown))
        )
        m = grown
    grown = tl.maximum(m, edge)
    s = s * tl.exp(m - grown) + tl.exp(edge - grown)
    top = tl.max(grown, axis=0)
    log_sum = tl.log(tl.sum(s * tl.exp(grown - top), axis=0))
    known = live & (t >= 0) & (t < classes)
    picked = tl.load(x + start + t, mask=known, other=float("nan")).to(tl.float32)
    value = (top - picked) + log_sum
    factor = tl.full((), 1.0, tl.float32)
    if WEIGHTED:
        factor = tl.load(weight + t * w_stride, mask=known, other=0.0).to(tl.float32)
        value *= factor
    tl.store(loss + row, tl.where(live, value, 0.0).to(loss.dtype.element_ty), mask=row < rows)
    if REDUCED:
        tl.store(norm + row, tl.where(live, factor, 0.0), mask=row < rows)


def _fast(x, target, weight, loss, norm, rows, classes, x_stride, t_stride, w_stride, ignore_index, reduced):
    vec = 16 // x.element_size()
    if classes >= 32768:
        warps = 8 if rows >= 528 else 16
    elif classes >= 4096:
        warps = 8
    else:
        warps = 4 if classes >= 1024 else 1
    _rows_online[(rows,)](
        x,
        target,
        x if weight is None else weight,
        loss,
        norm,
        rows,
        classes,
        x_stride,
        t_stride,
        w_stride,
        ignore_index,
        WEIGHTED=weight is not None,
        REDUCED=reduced,
        VEC=vec,
        BLOCK=32 * warps * vec,
        num_warps=warps,
    )


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    if size_average is not None or reduce is not None:
        if reduce is not None and not reduce:
            reduction = "none"
        else:
            reduction = "mean" if size_average is None or size_average else "sum"
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError("label_smoothing must be between 0.0 and 1.0")
    if input.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError("input is float32, bfloat16 or float16")
    if not input.is_cuda or input.device != target.device:
        raise ValueError("input and target are on one GPU")
    if input.dim() < 1:
        raise ValueError("input has at least one dimension")
    shape = input.shape
    axis = 0 if input.dim() == 1 else 1
    classes = shape[axis]
    outer = 1 if axis == 0 else shape[0]
    inner = 1
    for size in shape[axis + 1 :]:
        inner *= size
    rest = shape[:axis] + shape[axis + 1 :]
    rows = outer * inner
    probabilities = target.shape == shape
    dtype = input.dtype
    if probabilities:
        if target.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError("target of probabilities is float32, bfloat16 or float16")
        dtype = torch.promote_types(dtype, target.dtype)
    else:
        if target.shape != rest:
            raise ValueError("target has the shape of input without its classes")
        if target.dtype not in (torch.int64, torch.uint8):
            raise TypeError("target of class indices is int64")
    w_stride = 0
    if weight is not None:
        if weight.dim() != 1 or weight.shape[0] != classes or weight.device != input.device:
            raise ValueError("weight has one element a class")
        if weight.dtype != input.dtype:
            raise TypeError("weight has the type of input")
        w_stride = weight.stride(0)
    if classes == 0 and rows:
        raise ValueError("no classes")
    if classes >= 2**30 or rows >= 2**30:
        raise ValueError("a size is too large")

    reduced = reduction != "none"
    if reduced:
        out = torch.empty((), dtype=dtype, device=input.device)
        loss = torch.empty(max(rows, 1), dtype=torch.float32, device=input.device)
        norm = torch.empty(max(rows, 1), dtype=torch.float32, device=input.device)
    else:
        out = loss = norm = torch.empty(rest, dtype=dtype, device=input.device)
    if rows:
        if axis == 0:
            x_n, x_c, x_d = 0, input.stride(0), 0
            x = input
        elif input.dim() == 2:
            x_n, x_c, x_d = input.stride(0), input.stride(1), 0
            x = input
        else:
            x = input.reshape(outer, classes, inner)
            x_n, x_c, x_d = x.stride()
        if input.dim() <= 2 and (x_c == 1 or classes == 1) and not probabilities and label_smoothing == 0.0:
            t_stride = target.stride(0) if target.dim() else 0
            _fast(
                x, target, weight, loss, norm, rows, classes, x_n, t_stride, w_stride, ignore_index, reduced
            )
        else:
            if probabilities:
                target = target.reshape(1, classes, 1) if axis == 0 else target.reshape(outer, classes, inner)
                t_n, t_c, t_d = target.stride()
            else:
                target = target.reshape(outer, inner)
                (t_n, t_d), t_c = target.stride(), 0
            BLOCK = min(max(triton.next_power_of_2(classes), 128), 4096)
            _rows_general[(rows,)](
                x,
                target,
                x if weight is None else weight,
                loss,
                norm,
                rows,
                inner,
                classes,
                x_n,
                x_c,
                x_d,
                t_n,
                t_c,
                t_d,
                w_stride,
                ignore_index,
                1.0 - label_smoothing,
                label_smoothing / classes,
                WEIGHTED=weight is not None,
                PROBABILITIES=probabilities,
                WALK=probabilities or label_smoothing > 0.0,
                REDUCED=reduced,
                BLOCK=BLOCK,
                num_warps=8 if BLOCK == 4096 else 4,
            )
    if reduced:
        _total[(1,)](loss, norm, out, rows, MEAN=reduction == "mean", BLOCK=4096, num_warps=16)
    return out
