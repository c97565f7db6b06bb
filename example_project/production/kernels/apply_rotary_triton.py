import torch
import triton
import triton.language as tl

_FLOATS = frozenset((torch.bfloat16, torch.float16, torch.float32, torch.float64))


@triton.jit
def _tile(
    source, target, cosine, sine, batch, token, head, column, length, half, heads, stride_batch, stride_head,
    stride_token,
):  # fmt: skip
    # token: [T, 1, 1], head: [1, H, 1], column: [1, 1, C]; cosine and sine: [T, 1, C]
    inside = (token < length) & (head < heads) & (column < half)
    reads = (token * stride_token + head * stride_head) + column
    source += batch * stride_batch
    left = tl.load(source + reads, mask=inside, other=0.0).to(cosine.dtype)
    right = tl.load(source + reads + half, mask=inside, other=0.0).to(cosine.dtype)
    first = left * cosine - right * sine
    second = right * cosine + left * sine
    if target.dtype.element_ty.primitive_bitwidth == 16:
        first = first.to(tl.float32)
        second = second.to(tl.float32)
    writes = (head * length + token) * (2 * half) + column
    target += batch * heads * length * (2 * half)
    tl.store(target + writes, first.to(target.dtype.element_ty), mask=inside)
    tl.store(target + writes + half, second.to(target.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length", "query_heads", "key_heads"])
def _rotary(
    query, key, cos, sin, query_out, key_out, length, half, query_heads, key_heads,
    query_batch, query_head, query_token, key_batch, key_head, key_token,
    WIDE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    query_groups = (query_heads + (HEADS - 1)) // HEADS
    groups = query_groups + (key_heads + (HEADS - 1)) // HEADS
    blocks = (length - 1) // TOKENS + 1
    group = pid % groups
    rest = pid // groups
    block = (rest % blocks).to(tl.int64)
    batch = (rest // blocks).to(tl.int64)

    token = (block * TOKENS + tl.arange(0, TOKENS))[:, None, None]
    member = tl.arange(0, HEADS)[None, :, None]
    column = tl.arange(0, BLOCK)[None, None, :]
    seen = (token < length) & (column < half)
    angles = token * half + column
    cosine = tl.load(cos + angles, mask=seen, other=0.0)
    sine = tl.load(sin + angles, mask=seen, other=0.0)
    if WIDE:
        cosine = cosine.to(tl.float64)
        sine = sine.to(tl.float64)
    else:
        cosine = cosine.to(tl.float32)
        sine = sine.to(tl.float32)
    long_length = length.to(tl.int64)
    if group < query_groups:
        _tile(
            query, query_out, cosine, sine, batch, token, group.to(tl.int64) * HEADS + member, column, long_length,
            half, query_heads, query_batch, query_head, query_token,
        )  # fmt: skip
    else:
        _tile(
            key, key_out, cosine, sine, batch, token, (group - query_groups).to(tl.int64) * HEADS + member, column,
            long_length, half, key_heads, key_batch, key_head, key_token,
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
    if length < 4:
        tokens, heads, warps = 1, max(1, min(16, 256 // block)), 1
    else:
        warps = 4
        heads = max(1, min(8, 2048 // block, triton.next_power_of_2(max(query_heads, key_heads))))
        tokens = max(1, min(32, 2048 // (block * heads)))
    if block > 512 * warps:
        warps = min(16, block // 512)
    groups = -(-query_heads // heads) + -(-key_heads // heads)
    grid = batch * -(-length // tokens) * groups
    wide = dtype == torch.float64 or cos.dtype == torch.float64 or sin.dtype == torch.float64
    _rotary[(grid,)](
        query, key, cos, sin, query_out, key_out, length, half, query_heads, key_heads,
        query_strides[0], query_strides[1], query_strides[2], key_strides[0], key_strides[1], key_strides[2],
        WIDE=wide, TOKENS=tokens, HEADS=heads, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return query_out, key_out
