import torch
import triton
import triton.language as tl

_FLOATS = frozenset((torch.bfloat16, torch.float16, torch.float32, torch.float64))


@triton.jit
def _load_pair(source, offsets, half, inside):
    left = tl.load(source + offsets, mask=inside, other=0.0)
    right = tl.load(source + offsets + half, mask=inside, other=0.0)
    return left, right


@triton.jit
def _store_pair(target, offsets, half, inside, left, right, cosine, sine):
    x = left.to(cosine.dtype)
    y = right.to(cosine.dtype)
    first = x * cosine - y * sine
    second = y * cosine + x * sine
    if target.dtype.element_ty.primitive_bitwidth == 16:
        first = first.to(tl.float32)
        second = second.to(tl.float32)
    tl.store(target + offsets, first.to(target.dtype.element_ty), mask=inside)
    tl.store(target + offsets + half, second.to(target.dtype.element_ty), mask=inside)


@triton.jit
def _turn(
    source, target, cosine, sine, batch, group, token, head, columns, inside, length, half, heads,
    stride_batch, stride_head, stride_token, HEADS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    first = group.to(tl.int64) * (GROUP * HEADS)
    source += batch * stride_batch
    plane = length * (2 * half)  # elements of a head in the output; int64, as length is
    target += batch * heads * plane
    reads = (token * stride_token + head * stride_head)[:, None] + columns[None, :]
    writes = ((head * length + token) * (2 * half))[:, None] + columns[None, :]
    mask0 = inside & (first + head < heads)[:, None]
    left0, right0 = _load_pair(source + first * stride_head, reads, half, mask0)
    if GROUP == 4:
        second = first + HEADS
        third = first + 2 * HEADS
        fourth = first + 3 * HEADS
        mask1 = inside & (second + head < heads)[:, None]
        mask2 = inside & (third + head < heads)[:, None]
        mask3 = inside & (fourth + head < heads)[:, None]
        left1, right1 = _load_pair(source + second * stride_head, reads, half, mask1)
        left2, right2 = _load_pair(source + third * stride_head, reads, half, mask2)
        left3, right3 = _load_pair(source + fourth * stride_head, reads, half, mask3)
        _store_pair(target + first * plane, writes, half, mask0, left0, right0, cosine, sine)
        _store_pair(target + second * plane, writes, half, mask1, left1, right1, cosine, sine)
        _store_pair(target + third * plane, writes, half, mask2, left2, right2, cosine, sine)
        _store_pair(target + fourth * plane, writes, half, mask3, left3, right3, cosine, sine)
    else:
        _store_pair(target + first * plane, writes, half, mask0, left0, right0, cosine, sine)


@triton.jit(do_not_specialize=["length", "query_heads", "key_heads"])
def _rotary(
    query, key, cos, sin, query_out, key_out, length, half, query_heads, key_heads,
    query_batch, query_head, query_token, key_batch, key_head, key_token,
    WIDE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    query_groups = (query_heads + (GROUP * HEADS - 1)) // (GROUP * HEADS)
    groups = query_groups + (key_heads + (GROUP * HEADS - 1)) // (GROUP * HEADS)
    blocks = (length - 1) // TOKENS + 1
    group = pid % groups
    rest = pid // groups
    block = (rest % blocks).to(tl.int64)
    batch = (rest // blocks).to(tl.int64)

    lane = tl.arange(0, TOKENS * HEADS)
    token = block * TOKENS + lane // HEADS
    head = (lane % HEADS).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = (token < length)[:, None] & (columns < half)[None, :]
    angles = (token * half)[:, None] + columns[None, :]
    cosine = tl.load(cos + angles, mask=inside, other=0.0)
    sine = tl.load(sin + angles, mask=inside, other=0.0)
    if WIDE:
        cosine = cosine.to(tl.float64)
        sine = sine.to(tl.float64)
    else:
        cosine = cosine.to(tl.float32)
        sine = sine.to(tl.float32)
    long_length = length.to(tl.int64)
    if group < query_groups:
        _turn(
            query, query_out, cosine, sine, batch, group, token, head, columns, inside, long_length, half, query_heads,
            query_batch, query_head, query_token, HEADS, GROUP,
        )  # fmt: skip
    else:
        _turn(
            key, key_out, cosine, sine, batch, group - query_groups, token, head, columns, inside, long_length, half,
            key_heads, key_batch, key_head, key_token, HEADS, GROUP,
        )  # fmt: skip


def apply_rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, query_heads, length, width = query.shape
    key_batch, key_heads, key_length, key_width = key.shape
    dtype = query.dtype
    if key_batch != batch or key_length != length or key_width != width or key.dtype != dtype:
        # Unlike each other: one launch for each.
        turned_query = apply_rotary(query, query[:, :0], cos, sin)[0]
        return turned_query, apply_rotary(key, key[:, :0], cos, sin)[0]
    half = width // 2
    if half == 0 or width != 2 * half:
        raise ValueError(f"the width must be even and positive: {width}")
    if cos.shape != (length, half) or sin.shape != (length, half):
        raise ValueError(f"cos and sin must be ({length}, {half}): {tuple(cos.shape)}, {tuple(sin.shape)}")
    if dtype not in _FLOATS or cos.dtype not in _FLOATS or sin.dtype not in _FLOATS:
        raise TypeError(f"unsupported types: {dtype}, {cos.dtype}, {sin.dtype}")
    query_out = torch.empty(query.shape, dtype=dtype, device=query.device)
    key_out = torch.empty(key.shape, dtype=dtype, device=key.device)
    if batch == 0 or length == 0 or query_heads + key_heads == 0:
        return query_out, key_out

    query_strides = query.stride()
    if query_strides[3] != 1:
        query = query.contiguous()
        query_strides = query.stride()
    key_strides = key.stride()
    if key_strides[3] != 1:
        key = key.contiguous()
        key_strides = key.stride()
    if not cos.is_contiguous():
        cos = cos.contiguous()
    if not sin.is_contiguous():
        sin = sin.contiguous()

    block = triton.next_power_of_2(half)
    if length < 8:
        tokens, group, warps = 1, 1, 1
        heads = max(1, min(16, 256 // block))
    else:
        # Few programs: smaller ones, so that the last wave is short.
        warps = 4 if batch * length * (query_heads + key_heads) * block >= 1 << 23 else 2
        heads, group = 1, 4
        tokens = max(1, min(32, 256 * warps // block))
    if block > 256 * warps:
        warps = min(16, block // 256)
    step = heads * group
    groups = -(-query_heads // step) + -(-key_heads // step)
    grid = batch * -(-length // tokens) * groups
    wide = dtype == torch.float64 or cos.dtype == torch.float64 or sin.dtype == torch.float64
    _rotary[(grid,)](
        query, key, cos, sin, query_out, key_out, length, half, query_heads, key_heads,
        query_strides[0], query_strides[1], query_strides[2], key_strides[0], key_strides[1], key_strides[2],
        WIDE=wide, TOKENS=tokens, HEADS=heads, GROUP=group, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return query_out, key_out
