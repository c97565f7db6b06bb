"""Ops with blocks, axes, positions, packed sequences and scans, and calls of them in which much is equal, even or in order."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn import functional

GROUP, TILE, NIBBLES = 64, 128, 32
TABLE = torch.linspace(-1, 1, 16) ** 3


def _spread(scale: Tensor, block: int, dim: int, size: int) -> Tensor:
    """A number for each element; there must be as many as there are blocks."""
    if scale.shape[dim] != -(-size // block):
        raise ValueError(f"{scale.shape[dim]} numbers for {size} elements in blocks of {block}")
    return scale.repeat_interleave(block, dim).narrow(dim, 0, size)


def group_values(codes: Tensor, scale: Tensor) -> Tensor:
    """int8 codes (rows, width) with a scale for 64 in a row."""
    return codes.to(scale.dtype) * _spread(scale, GROUP, 1, codes.shape[1])


def tile_linear(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x (rows, in) times float8 weights (out, in), with a scale for 128 x 128 of them."""
    factors = _spread(_spread(scale, TILE, 0, weight.shape[0]), TILE, 1, weight.shape[1])
    return x @ (weight.to(x.dtype) * factors).t()


def wide_tile_linear(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """The same of weights that are halved before they are moved, and their scales with them."""
    return tile_linear(x, weight, scale)


def block_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 codes of x (rows, width), and the scale of 128 in a row, all of them whole."""
    blocks = x.view(len(x), -1, TILE)
    scale = blocks.abs().amax(-1).clamp_min(1e-12) / 127
    return torch.round(blocks / scale[..., None]).clamp(-127, 127).to(torch.int8).view(x.shape), scale


def nibble_linear(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    """x (rows, in) times weights of four bits (out, in / 2), the low half first, with a scale for 32 of them."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).to(x.dtype) - 8
    return x @ (codes * _spread(scale, NIBBLES, 1, codes.shape[1])).t()


def table_values(codes: Tensor, most: Tensor) -> Tensor:
    """Flat bytes of two codes of a table each, with a factor for 64 codes."""
    pairs = torch.stack([codes >> 4, codes & 15], -1).flatten().long()
    return TABLE.to(most.dtype)[pairs] * _spread(most, GROUP, 0, pairs.numel())


def channel_scaled(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    """x times a number for each of its slices along an axis."""
    if scale.numel() != x.shape[axis]:
        raise ValueError("one number a slice")
    shape = [1] * x.ndim
    shape[axis] = -1
    return x * scale.view(shape)


def int8_of_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and the one scale of all of them."""
    scale = x.abs().amax().clamp_min(1e-12) / 127
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale


def row_normalized(x: Tensor) -> Tensor:
    """Rows over their largest magnitude."""
    return x / x.abs().amax(-1, keepdim=True).clamp_min(1e-12)


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Pairs of halves of x (batch, tokens, width), turned by their positions (batch, tokens)."""
    half = x.shape[-1] // 2
    angle = positions.to(x.dtype)[..., None] * 0.5 ** torch.arange(half, dtype=x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1
    )


def embedded(x: Tensor, table: Tensor, position_ids: Tensor) -> Tensor:
    """x (tokens, width) plus the rows of a table at positions."""
    return x + table[position_ids]


def packed_cross(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> Tensor:
    """Attention of packed queries to packed keys, sequence by sequence, the last query at the last key."""
    outs = []
    for number in range(len(cu_q) - 1):
        queries, keys = slice(*cu_q[number : number + 2].tolist()), slice(*cu_k[number : number + 2].tolist())
        rows, columns = q[queries], k[keys]
        later = torch.ones(len(rows), len(columns), dtype=torch.bool).triu(1 + len(columns) - len(rows))
        scores = (rows @ columns.t() / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
        outs.append(scores.softmax(-1) @ v[keys])
    return torch.cat(outs)


def packed_overlap(q: Tensor, k: Tensor, q_offsets: Tensor, k_offsets: Tensor) -> Tensor:
    """Each query plus the mean of the keys of its sequence."""
    counts = k_offsets.diff()
    sums = k.new_zeros(len(counts), k.shape[1]).index_add(
        0, torch.arange(len(counts)).repeat_interleave(counts), k
    )
    means = sums / counts.clamp_min(1)[:, None].to(k.dtype)
    return q + means.repeat_interleave(q_offsets.diff(), 0)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Of each row of a (m, width) to each of b (n, width)."""
    return (a[:, None] - b).abs().sum(-1)


def gated(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """x (rows, in) times two weights (out, in)."""
    return functional.silu(x @ gate.t()) * (x @ up.t())


def cached(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Queries (batch, width) to as many tokens of caches (batch, tokens, width) as lengths say."""
    rows = []
    for query, key, value, length in zip(q, keys, values, lengths.tolist(), strict=True):
        rows.append((key[:length] @ query / q.shape[-1] ** 0.5).softmax(0) @ value[:length])
    return torch.stack(rows) if rows else q.clone()


def running_mean(x: Tensor) -> Tensor:
    """Of each number of a row and all before."""
    return x.cumsum(-1) / torch.arange(1, x.shape[-1] + 1)


def summed_tokens(x: Tensor) -> Tensor:
    """Sums of all tokens so far of x (batch, tokens, width)."""
    return x.cumsum(1)


def taken_pages(cache: Tensor, table: Tensor) -> Tensor:
    """The pages that a table names (batch, pages), one behind the other."""
    return cache[table.long()].flatten(1, 2)


def segment_sums(x: Tensor, offsets: Tensor) -> Tensor:
    """Sums of packed rows, segment by segment."""
    return torch.stack([x[begin:end].sum(0) for begin, end in itertools.pairwise(offsets.tolist())])


def placed(cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
    """A cache with rows at slots; of a slot of -1 the row is padding."""
    return cache.index_put((slots[slots >= 0],), rows[slots >= 0])


def routed(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The most likely experts of each token, and how likely they are."""
    likely, experts = logits.softmax(-1).topk(count, -1)
    return likely, experts


def coded(x: Tensor, scale: float) -> Tensor:
    """Codes of numbers."""
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8)


def thinned(x: Tensor, seed: int) -> Tensor:
    """Half of the numbers, by a seed."""
    lots = torch.arange(x.numel()).reshape(x.shape) * 2654435761 + seed * 40503
    return torch.where((lots * 2246822519 >> 29) % 2 == 0, x, torch.zeros(()))


def run_calls() -> None:
    """Whole blocks, one length, positions in order."""
    generator = torch.Generator().manual_seed(11)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    group_values(whole(-128, 128, 128, 128).to(torch.int8), normal(128, 2).abs() + 0.1)
    tile_linear(normal(6, 256), normal(96, 256).to(torch.float8_e4m3fn), normal(1, 2).abs() + 0.1)
    wide_tile_linear(normal(5, 1024), normal(768, 1024).to(torch.float8_e4m3fn), normal(6, 8).abs() + 0.1)
    block_codes(normal(16, 512))
    nibble_linear(normal(5, 128), whole(0, 256, 24, 64).to(torch.uint8), normal(24, 4).abs() + 0.1)
    table_values(whole(0, 256, 256).to(torch.uint8), normal(8).abs() + 0.1)
    channel_scaled(normal(6, 10, 4), normal(10).abs() + 0.1, 1)
    int8_of_tensor(normal(24, 64))
    row_normalized(normal(9, 64))
    positions = torch.arange(12)
    rotated(normal(2, 12, 16), positions.expand(2, 12).contiguous())
    embedded(normal(12, 10), normal(40, 10), positions)
    offsets = torch.tensor([0, 6, 12, 18])
    packed_cross(normal(18, 8), normal(18, 8), normal(18, 8), offsets, offsets.clone())
    packed_overlap(normal(18, 5), normal(18, 5), offsets, offsets.clone())
    distances(normal(24, 16), normal(24, 16))
    gated(normal(32, 32), normal(32, 32) / 6, normal(32, 32) / 6)
    cached(normal(4, 10), normal(4, 12, 10), normal(4, 12, 10), torch.tensor([5, 7, 3, 6]))
    running_mean(normal(4, 320))
    summed_tokens(normal(2, 48, 8))
    taken_pages(normal(16, 4, 6), torch.arange(12, dtype=torch.int32).reshape(4, 3))
    torch.index_select(normal(8, 6), 0, torch.tensor([3, 1, 7, 0, 5]))
    torch.index_add(normal(20, 6), 0, torch.randperm(20, generator=generator)[:9], normal(9, 6))
    torch.cat([normal(3, 6), normal(5, 6)], 0)
    torch.bucketize(normal(6, 7), torch.linspace(-2, 2, 9))
    torch.cumsum(normal(6, 40), -1)
    torch.where(normal(16) > 0, normal(8, 16), normal(8, 16))
    torch.add(normal(8, 16), normal(16))
    segment_sums(normal(30, 8), torch.tensor([0, 4, 11, 12, 30]))
    placed(normal(48, 2, 8), normal(5, 2, 8), torch.tensor([3, -1, 40, 5, -1]))
    routed(normal(16, 8), 2)
    coded(normal(9, 24), 0.02)
    thinned(normal(9, 24), 1234)
    torch.cumprod(normal(8, 64), -1)
    torch.sum(whole(0, 900, 6, 40).int(), -1)
    torch.sort(whole(0, 900, 6, 40), -1)
    torch.expm1(normal(6, 40))
    torch.var(normal(8, 64), -1)
    functional.softmax(normal(8, 48), -1)
