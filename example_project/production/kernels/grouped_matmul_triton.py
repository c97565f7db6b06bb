import functools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _place(local, m_tiles, n_tiles, GROUP_M: tl.constexpr):
    # the tile's row and column of tiles: blocks of GROUP_M rows of tiles, columns walked through, rows fastest
    width = GROUP_M * n_tiles
    first = local // width * GROUP_M
    high = tl.minimum(m_tiles - first, GROUP_M)
    inner = local % width
    return first + inner % high, inner // high


@triton.jit(do_not_specialize=["rows", "groups"])
def _by_pointers(
    x,
    weight,
    out,
    ends,
    ends_stride,
    rows,
    groups,
    K,
    N,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # any sizes: contiguous x (rows, K), weight (groups, K, N), out (rows, N)
    n_tiles = tl.cdiv(N, BN)
    tile = tl.program_id(0)
    step = tl.num_programs(0)
    base = 0
    start = 0
    for g in range(groups):
        end = tl.load(ends + g.to(tl.int64) * ends_stride, mask=g < groups, other=0).to(tl.int32)
        end = tl.minimum(tl.maximum(end, start), rows)
        m_tiles = tl.cdiv(end - start, BM)
        limit = base + m_tiles * n_tiles
        while tile < limit:
            m, n = _place(tile - base, m_tiles, n_tiles, GROUP_M)
            row = start + m * BM + tl.arange(0, BM)
            column = n * BN + tl.arange(0, BN)
            depth = tl.arange(0, BK)
            row_in = row < end
            column_in = column < N
            a_at = x + row.to(tl.int64)[:, None] * K + depth[None, :]
            b_at = weight + g.to(tl.int64) * K * N + depth.to(tl.int64)[:, None] * N + column[None, :]
            b_step = tl.full((), BK, tl.int64) * N
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                left = K - k
                a = tl.load(a_at, mask=row_in[:, None] & (depth < left)[None, :], other=0.0)
                b = tl.load(b_at, mask=(depth < left)[:, None] & column_in[None, :], other=0.0)
                acc = tl.dot(a, b, acc, input_precision="ieee")
                a_at += BK
                b_at += b_step
            tl.store(
                out + row.to(tl.int64)[:, None] * N + column[None, :],
                acc.to(out.dtype.element_ty),
                mask=row_in[:, None] & column_in[None, :],
            )
            tile += step
        base = limit
        start = end


@functools.lru_cache(None)
def _processors(index):
    return torch.cuda.get_device_properties(index).multi_processor_count


def _packed(tensor):
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


def _check(x, weight, ends):
    if x.dim() != 2 or weight.dim() != 3 or ends.dim() != 1:
        raise ValueError("x is (rows, k), weight is (groups, k, n), ends is (groups,)")
    if weight.shape[1] != x.shape[1] or ends.shape[0] != weight.shape[0]:
        raise ValueError("shapes of x, weight and ends do not agree")
    if x.dtype != weight.dtype or x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise TypeError("x and weight have one type: bfloat16, float16 or float32")
    if ends.dtype not in (torch.int32, torch.int64):
        raise TypeError("ends is int32")
    if not (x.is_cuda and x.device == weight.device == ends.device):
        raise ValueError("x, weight and ends are on one GPU")
    if x.shape[0] >= 2**30 or x.shape[1] >= 2**30 or weight.shape[2] >= 2**30:
        raise ValueError("a size is too large")


@triton.jit(do_not_specialize=["rows", "groups"])
def _by_descriptors(
    x_tiles,
    weight_tiles,
    out,
    ends,
    ends_stride,
    rows,
    groups,
    K,
    N,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # K is a multiple of BK, so that no tile of weight, (groups * K, N), reaches into the next group
    n_tiles = tl.cdiv(N, BN)
    tile = tl.program_id(0)
    step = tl.num_programs(0)
    base = 0
    start = 0
    for g in range(groups):
        end = tl.load(ends + g.to(tl.int64) * ends_stride, mask=g < groups, other=0).to(tl.int32)
        end = tl.minimum(tl.maximum(end, start), rows)
        m_tiles = tl.cdiv(end - start, BM)
        limit = base + m_tiles * n_tiles
        while tile < limit:
            m, n = _place(tile - base, m_tiles, n_tiles, GROUP_M)
            row_first = start + m * BM
            column_first = n * BN
            depth_first = g * K
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                a = x_tiles.load([row_first, k])
                b = weight_tiles.load([depth_first + k, column_first])
                acc = tl.dot(a, b, acc)
            row = row_first + tl.arange(0, BM)
            column = column_first + tl.arange(0, BN)
            tl.store(
                out + row.to(tl.int64)[:, None] * N + column[None, :],
                acc.to(out.dtype.element_ty),
                mask=(row < end)[:, None] & (column < N)[None, :],
            )
            tile += step
        base = limit
        start = end


def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    _check(x, weight, ends)
    rows, K = x.shape
    groups, _, N = weight.shape
    out = torch.empty((rows, N), dtype=x.dtype, device=x.device)
    if rows == 0 or N == 0:
        return out
    if groups == 0:
        raise ValueError("rows without a group")
    x = _packed(x)
    weight = _packed(weight)
    per_sm = 1
    tma = x.element_size() == 2 and K > 0 and K % 64 == 0 and N % 8 == 0 and groups * K < 2**31
    if x.element_size() == 4:
        BM, BN, BK, warps, stages, per_sm = 64, 64, 32, 4, 2, 4
    elif tma and rows > 64 * groups and N > 128:
        BM, BN, BK, warps, stages = 128, 256, 64, 8, 4
    elif tma:
        BM, BN, BK, warps, stages, per_sm = 64, 128, 64, 4, 4, 2
    elif rows > 64 * groups:
        BM, BN, BK, warps, stages = 128, 128, 64, 8, 3
    else:
        BM, BN, BK, warps, stages, per_sm = 64, 128, 64, 4, 3, 2
    most = (triton.cdiv(rows, BM) + min(groups, rows)) * triton.cdiv(N, BN)
    if most >= 2**30:
        raise ValueError("too many tiles")
    grid = (min(most, per_sm * _processors(x.device.index)),)
    if tma:
        _by_descriptors[grid](
            TensorDescriptor(x, [rows, K], [K, 1], [BM, BK]),
            TensorDescriptor(weight, [groups * K, N], [N, 1], [BK, BN]),
            out,
            ends,
            ends.stride(0),
            rows,
            groups,
            K,
            N,
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP_M=16,
            num_warps=warps,
            num_stages=stages,
        )
    else:
        _by_pointers[grid](
            x,
            weight,
            out,
            ends,
            ends.stride(0),
            rows,
            groups,
            K,
            N,
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP_M=16,
            num_warps=warps,
            num_stages=stages,
        )
    return out
