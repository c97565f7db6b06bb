import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# rows and columns of a tile, warps, stages, programs an SM, assumed efficiency in percent
_TILES = (
    (128, 256, 8, 3, 1, 100),
    (128, 128, 8, 4, 1, 85),
    (128, 64, 4, 3, 2, 68),
    (64, 64, 4, 4, 2, 50),
)
_SMS = 132
_BLOCK_K = 64
_LIMIT = 2**31 - 1024


@triton.jit
def _tile_of(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP * tiles_n
    first = (pid // in_group) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    inner = pid % in_group
    return first + inner % height, inner // height


@triton.jit
def _persistent(
    x_desc,
    w_desc,
    out_desc,
    bias,
    M,
    N,
    K,
    bias_stride,
    programs,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    DTYPE: tl.constexpr,
):
    start = tl.program_id(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    # The epilogue counts for itself, so that the next tile's loads need not wait for it.
    done = start - programs
    for tile in tl.range(start, tiles, programs, flatten=True):
        tile_m, tile_n = _tile_of(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        m0 = tile_m * BLOCK_M
        n0 = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            k0 = step * BLOCK_K
            a = x_desc.load([m0, k0])
            b = w_desc.load([n0, k0])
            acc = tl.dot(a, b.T, acc)

        done += programs
        tile_m, tile_n = _tile_of(done, M, N, BLOCK_M, BLOCK_N, GROUP)
        m1 = tile_m * BLOCK_M
        n1 = tile_n * BLOCK_N
        if HAS_BIAS:
            n = n1.to(tl.int64) + tl.arange(0, BLOCK_N)
            added = tl.load(bias + n * bias_stride, mask=n < N, other=0.0).to(tl.float32)
            acc = acc + added[None, :]
        out_desc.store([m1, n1], acc.to(DTYPE))


@triton.jit
def _thin(
    x_desc,
    w_desc,
    bias,
    out,
    parts,
    M,
    N,
    K,
    bias_stride,
    steps_each,
    HAS_BIAS: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    n0 = tl.program_id(0) * BLOCK_N
    part = tl.program_id(1)
    first = part * steps_each
    last = tl.minimum(first + steps_each, tl.cdiv(K, BLOCK_K))
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for step in range(first, last):
        k0 = step * BLOCK_K
        a = w_desc.load([n0, k0])
        b = x_desc.load([0, k0])
        acc = tl.dot(a, b.T, acc)
    n = n0.to(tl.int64) + tl.arange(0, BLOCK_N)
    m = tl.arange(0, BLOCK_M).to(tl.int64)
    n_in = n < N
    inside = n_in[:, None] & (m < M)[None, :]
    where = m[None, :] * N + n[:, None]
    if SPLIT:
        tl.store(parts + (part.to(tl.int64) * M) * N + where, acc, mask=inside)
    else:
        if HAS_BIAS:
            added = tl.load(bias + n * bias_stride, mask=n_in, other=0.0).to(tl.float32)
            acc = acc + added[:, None]
        tl.store(out + where, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _join(parts, bias, out, M, N, count, bias_stride, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n_in = n < N
    size = N.to(tl.int64) * M
    source = parts + row * N + n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(count):
        total += tl.load(source + i * size, mask=n_in, other=0.0)
    if HAS_BIAS:
        total = total + tl.load(bias + n * bias_stride, mask=n_in, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, total.to(out.dtype.element_ty), mask=n_in)


@triton.jit
def _gemm_ptr(
    x,
    w,
    bias,
    out,
    M,
    N,
    K,
    x_row_stride,
    x_stride,
    w_row_stride,
    w_stride,
    bias_stride,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    tile_m, tile_n = _tile_of(tl.program_id(0).to(tl.int64), M, N, BLOCK_M, BLOCK_N, GROUP)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    m_in = m < M
    n_in = n < N
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    x_rows = x + m[:, None] * x_row_stride
    w_rows = w + n[None, :] * w_row_stride
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + ks
        k_in = k < K
        a = tl.load(x_rows + k[None, :] * x_stride, mask=m_in[:, None] & k_in[None, :], other=0.0)
        b = tl.load(w_rows + k[:, None] * w_stride, mask=k_in[:, None] & n_in[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if HAS_BIAS:
        added = tl.load(bias + n * bias_stride, mask=n_in, other=0.0).to(tl.float32)
        acc = acc + added[None, :]
    inside = m_in[:, None] & n_in[None, :]
    tl.store(out + m[:, None] * N + n[None, :], acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gemv(
    x,
    w,
    bias,
    out,
    N,
    K,
    x_stride,
    w_row_stride,
    w_stride,
    bias_stride,
    HAS_BIAS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    n_in = n < N
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    w_rows = w + n[:, None] * w_row_stride
    acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + ks
        k_in = k < K
        a = tl.load(x + k * x_stride, mask=k_in, other=0.0).to(tl.float32)
        b = tl.load(
            w_rows + k[None, :] * w_stride,
            mask=n_in[:, None] & k_in[None, :],
            other=0.0,
            eviction_policy="evict_first",
        ).to(tl.float32)
        acc += a[None, :] * b
    total = tl.sum(acc, axis=1)
    if HAS_BIAS:
        total = total + tl.load(bias + n * bias_stride, mask=n_in, other=0.0).to(tl.float32)
    tl.store(out + n, total.to(out.dtype.element_ty), mask=n_in)


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 1 else 1


def _choose(M: int, N: int):
    best = None
    least = 0
    for tile in _TILES:
        bm, bn, _, _, _, efficiency = tile
        tiles = -(-M // bm) * -(-N // bn)
        cost = -(-tiles // _SMS) * bm * bn / efficiency
        if best is None or cost < least:
            best, least = tile, cost
    return best


def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    dtype = input.dtype
    if dtype != torch.float16 and dtype != torch.bfloat16 and dtype != torch.float32:
        raise TypeError("linear: float16, bfloat16 and float32 are computed here")
    if weight.dtype != dtype or weight.device != input.device:
        raise TypeError("linear: input and weight differ in dtype or device")
    shape = input.shape
    if len(shape) == 0 or weight.dim() not in (1, 2):
        raise ValueError("linear: input needs a dimension, weight one or two")
    K = shape[-1]
    vector = weight.dim() == 1
    if vector:
        weight = weight.unsqueeze(0)
    N = weight.shape[0]
    if weight.shape[1] != K:
        raise ValueError("linear: the last dimensions of input and weight differ")
    has_bias = bias is not None
    bias_stride = 1
    if has_bias:
        if bias.dtype != dtype or bias.device != input.device:
            raise TypeError("linear: input and bias differ in dtype or device")
        if vector and bias.dim() == 0:
            bias = bias.reshape(1)
        if bias.dim() != 1 or bias.shape[0] != N:
            raise ValueError("linear: bias needs the shape (N,)")
        bias_stride = bias.stride(0)

    lead = shape[:-1]
    out = torch.empty(lead if vector else (*lead, N), dtype=dtype, device=input.device)
    if out.numel() == 0:
        return out
    M = 1
    for size in lead:
        M *= size
    x = input if len(shape) == 2 else input.reshape(M, K)
    xm, xk = x.stride()
    wn, wk = weight.stride()

    if M == 1:
        if K >= 2048:
            block_n, block_k, warps = 2, 2048, 8
        elif K >= 1024:
            block_n, block_k, warps = 2, 1024, 4
        else:
            block_n, block_k, warps = 8 if N >= 2048 else 4, min(512, max(16, _power(K))), 4
        _gemv[(-(-N // block_n),)](
            x,
            weight,
            bias,
            out,
            N,
            K,
            xk,
            wn,
            wk,
            bias_stride,
            HAS_BIAS=has_bias,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=warps,
        )
        return out

    narrow = dtype != torch.float32
    if (
        narrow
        and N > 32
        and K > 0
        and xk == 1
        and wk == 1
        and xm >= K
        and wn >= K
        and xm % 8 == 0
        and wn % 8 == 0
        and x.data_ptr() % 16 == 0
        and weight.data_ptr() % 16 == 0
        and M < _LIMIT
        and N < _LIMIT
        and K < _LIMIT
    ):
        # 128 rows of few features would leave half of the multiprocessors without a tile.
        if M <= 64 or (M <= 128 and N <= 16896):
            bm = max(16, _power(M))
            bn = 64
            bk = 64 if bm == 128 else 128
            tiles = -(-N // bn)
            steps = -(-K // bk)
            # Too few tiles to keep the memory busy: several programs share a sum, 512 of K each or more.
            split = 1
            if tiles < 100:
                split = max(1, min(264 // tiles, steps * bk // 512, 16))
            each = -(-steps // split)
            split = -(-steps // each)
            parts = out if split == 1 else torch.empty((split, M, N), dtype=torch.float32, device=out.device)
            x_desc = TensorDescriptor(x, [M, K], [xm, 1], [bm, bk])
            w_desc = TensorDescriptor(weight, [N, K], [wn, 1], [bn, bk])
            _thin[(tiles, split)](
                x_desc,
                w_desc,
                bias,
                out,
                parts,
                M,
                N,
                K,
                bias_stride,
                each,
                HAS_BIAS=has_bias,
                SPLIT=split > 1,
                BLOCK_M=bm,
                BLOCK_N=bn,
                BLOCK_K=bk,
                num_warps=4,
                num_stages=3 if bm == 64 else 4,
            )
            if split > 1:
                _join[(-(-N // 512), M)](
                    parts,
                    bias,
                    out,
                    M,
                    N,
                    split,
                    bias_stride,
                    HAS_BIAS=has_bias,
                    BLOCK=512,
                    num_warps=4,
                )
            return out
        if N % 8 == 0 and out.data_ptr() % 16 == 0:
            bm, bn, warps, stages, each_sm, _ = _choose(M, N)
            programs = min(-(-M // bm) * -(-N // bn), _SMS * each_sm)
            x_desc = TensorDescriptor(x, [M, K], [xm, 1], [bm, _BLOCK_K])
            w_desc = TensorDescriptor(weight, [N, K], [wn, 1], [bn, _BLOCK_K])
            out_desc = TensorDescriptor(out, [M, N], [N, 1], [bm, bn])
            _persistent[(programs,)](
                x_desc,
                w_desc,
                out_desc,
                bias,
                M,
                N,
                K,
                bias_stride,
                programs,
                HAS_BIAS=has_bias,
                BLOCK_M=bm,
                BLOCK_N=bn,
                BLOCK_K=_BLOCK_K,
                GROUP=8,
                DTYPE=tl.float16 if dtype == torch.float16 else tl.bfloat16,
                num_warps=warps,
                num_stages=stages,
            )
            return out

    warps = 4
    stages = 4
    if not narrow:
        bm = 16 if M <= 16 else 64
        bn = 32 if N <= 32 or M <= 16 else 64
        bk = 16
        stages = 3
    elif M <= 64:
        bm = max(16, _power(M))
        bn = 64 if N >= 16896 else 32 if N >= 3200 else 16
        bk = 128 if bm <= 32 else 64
    elif N <= 32:
        bm = 32 if M <= 16384 else 64
        bn = max(16, _power(N))
        bk = 128 if bm == 32 else 64
    else:
        bm, bn, bk, warps, stages = 128, 128, 64, 8, 3
    bk = min(bk, max(16, _power(K)))
    _gemm_ptr[(-(-M // bm) * -(-N // bn),)](
        x,
        weight,
        bias,
        out,
        M,
        N,
        K,
        xm,
        xk,
        wn,
        wk,
        bias_stride,
        HAS_BIAS=has_bias,
        BLOCK_M=bm,
        BLOCK_N=bn,
        BLOCK_K=bk,
        GROUP=8,
        num_warps=warps,
        num_stages=stages,
    )
    return out
