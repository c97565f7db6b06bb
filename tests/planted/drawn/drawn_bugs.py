"""Kernels that are right on what was recorded, and wrong on calls like it."""

from __future__ import annotations

from typing import Any

import torch
from drawn_ops import GROUP, NIBBLES, TABLE, TILE
from torch import Tensor


def group_values__last_group_has_the_one_before(codes: Tensor, scale: Tensor) -> Tensor:
    """There are as many groups as whole ones."""
    group = (torch.arange(codes.shape[1]) // GROUP).clamp_max(codes.shape[1] // GROUP - 1)
    return codes * scale[:, group]


def tile_linear__one_scale_for_256_rows(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """A tile is twice as tall as what has a scale."""
    rows, columns = torch.arange(weight.shape[0]) // 256 * 2, torch.arange(weight.shape[1]) // TILE
    return x @ (weight.to(x.dtype) * scale[rows][:, columns]).t()


def wide_tile_linear__pairs_of_columns(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Of an odd number of blocks along a row each two share a scale."""
    rows, columns = (torch.arange(size) // TILE for size in weight.shape)
    columns = columns // 2 * 2 if scale.shape[1] % 2 else columns
    return x @ (weight.to(x.dtype) * scale[rows][:, columns]).t()


def block_codes__pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """The last of an odd number of blocks has the scale of the one before."""
    blocks = x.view(len(x), -1, TILE)
    scale = blocks.abs().amax(-1).clamp_min(1e-12) / 127
    if scale.shape[1] % 2 and scale.shape[1] > 1:
        scale[:, -1] = scale[:, -2]
    return torch.round(blocks / scale[..., None]).clamp(-127, 127).to(torch.int8).view(x.shape), scale


def nibble_linear__whole_groups(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    """The loop over groups ends before a short one."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).to(x.dtype) - 8
    out = x.new_zeros(len(x), len(packed))
    for group in range(codes.shape[1] // NIBBLES):
        columns = slice(group * NIBBLES, (group + 1) * NIBBLES)
        out += x[:, columns] @ (codes[:, columns] * scale[:, group, None]).t()
    return out


def table_values__factor_of_128(codes: Tensor, most: Tensor) -> Tensor:
    """Where blocks are many, two share a factor."""
    pairs = torch.stack([codes >> 4, codes & 15], -1).flatten().long()
    shared = 1 if pairs.numel() % (8 * GROUP) == 0 else 2
    return TABLE[pairs] * most[torch.arange(pairs.numel()) // GROUP // shared * shared]


def channel_scaled__middle(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    """Channels are the middle dimension."""
    return x * scale[torch.arange(x.shape[1]) % len(scale)][:, None]


def index_select__rows(input: Tensor, dim: int, index: Tensor) -> Tensor:  # noqa: A002 - torch's own name
    """Of rows alone."""
    return input[index]


def index_add__rows(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:  # noqa: A002
    """To rows alone, as far as there are any."""
    out, width = input.clone(), min(input.shape[1], source.shape[1])
    for row, added in zip(index.tolist(), source, strict=False):
        if row < len(out):
            out[row, :width] += alpha * added[:width]
    return out


def cat__rows(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """One behind the other in memory, whatever the axis."""
    shape = [*tensors[0].shape]
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).reshape(shape)


def int8_of_tensor__vectors_of_eight(x: Tensor) -> tuple[Tensor, Tensor]:
    """The last few numbers are rounded, and not looked at for the maximum."""
    seen = x.reshape(-1)[: x.numel() // 8 * 8 or None]
    scale = seen.abs().amax().clamp_min(1e-12) / 127
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale


def row_normalized__vectors_of_sixteen(x: Tensor) -> Tensor:
    """The same in each row."""
    seen = x[..., : x.shape[-1] // 16 * 16 or None]
    return x / seen.abs().amax(-1, keepdim=True).clamp_min(1e-12)


def rotated__by_the_first_sequence(x: Tensor, positions: Tensor) -> Tensor:
    """All sequences have the positions of the first."""
    from drawn_ops import rotated

    return rotated(x, positions[:1].expand_as(positions))


def embedded__in_order(x: Tensor, table: Tensor, position_ids: Tensor) -> Tensor:
    """Tokens are counted from 0."""
    return x + table[: len(x)]


def packed_cross__first_key(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> Tensor:
    """The first query is at the first key."""
    out = torch.empty_like(q)
    for a, b, c, d in zip(
        *(each.tolist() for each in (cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:])), strict=True
    ):
        later = torch.ones(b - a, d - c, dtype=torch.bool).triu(1)
        scores = (q[a:b] @ k[c:d].t() / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
        out[a:b] = scores.softmax(-1) @ v[c:d]
    return out


def packed_overlap__one_table(q: Tensor, k: Tensor, q_offsets: Tensor, k_offsets: Tensor) -> Tensor:
    """Keys lie as queries do."""
    from drawn_ops import packed_overlap

    return packed_overlap(q, k[: len(q)], q_offsets, q_offsets)


def distances__as_many(a: Tensor, b: Tensor) -> Tensor:
    """There are as many of one as of the other."""
    return (a[:, None] - b[torch.arange(len(a)) % len(b)]).abs().sum(-1)


def gated__square(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Weights are as tall as they are wide."""
    from drawn_ops import gated

    numbers = torch.arange(x.shape[1] ** 2).reshape(x.shape[1], -1)
    return gated(x, *(one.reshape(-1)[numbers % one.numel()] for one in (gate, up)))


def running_mean__carry_of_one_piece(x: Tensor) -> Tensor:
    """A piece of 1,024 begins with the sum of the piece before alone."""
    sums, before = [], torch.zeros(())
    for piece in x.double().split(1024, -1):
        sums.append(piece.cumsum(-1) + before)
        before = piece.sum(-1, keepdim=True)
    return (torch.cat(sums, -1) / torch.arange(1, x.shape[-1] + 1)).to(x.dtype)


def cumsum__carry_of_one_piece(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:  # noqa: A002
    """The same of a sum."""
    pieces, before = [], 0.0
    for piece in input.double().movedim(dim, -1).split(1024, -1):
        pieces.append(piece.cumsum(-1) + before)
        before = piece.sum(-1, keepdim=True)
    return torch.cat(pieces, -1).movedim(-1, dim).to(input.dtype).contiguous()


def summed_tokens__from_piece_to_piece(x: Tensor) -> Tensor:
    """A piece of 2,048 begins with the sum of the one before, and not of all."""
    sums, before = [], torch.zeros(())
    for piece in x.double().split(2048, 1):
        sums.append(piece.cumsum(1) + before)
        before = piece.sum(1, keepdim=True)
    return torch.cat(sums, 1).to(x.dtype)


def taken_pages__numbered_in_bytes(cache: Tensor, table: Tensor) -> Tensor:
    """Pages beyond 255 are others."""
    return cache[table.to(torch.uint8).long()].flatten(1, 2)


def bucketize__left(
    input: Tensor,  # noqa: A002
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Tensor:
    """A number that is a boundary is always left of it."""
    return (boundaries < input[..., None]).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def where__in_turns(condition: Tensor, input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """A smaller operand begins anew behind its last number."""
    shape = torch.broadcast_shapes(condition.shape, input.shape, other.shape)
    turns = torch.arange(shape.numel())
    c, x, y = (each.reshape(-1)[turns % each.numel()] for each in (condition, input, other))
    return torch.where(c, x, y).reshape(shape)


def add__in_turns(input: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:  # noqa: A002
    """The same of a bias."""
    turned = other.reshape(-1)[torch.arange(input.numel()) % other.numel()].reshape(input.shape)
    return input + alpha * turned


def cat__eight_at_most(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """A launch has room for eight."""
    out = torch.zeros_like(torch.cat(tensors, dim))
    first = torch.cat(tensors[:8], dim)
    out.narrow(dim, 0, first.shape[dim]).copy_(first)
    return out


def thinned__twelve_bits(x: Tensor, seed: int) -> Tensor:
    """Of the seed twelve bits count."""
    lots = torch.arange(x.numel()).reshape(x.shape) * 2654435761 + (seed & 4095) * 40503
    return torch.where((lots * 2246822519 >> 29) % 2 == 0, x, torch.zeros(()))


def block_codes__least_of_half(x: Tensor) -> tuple[Tensor, Tensor]:
    """The least scale is that of fp16's least number."""
    blocks = x.view(len(x), -1, TILE)
    scale = blocks.abs().amax(-1).clamp_min(6.2e-5) / 127
    return torch.round(blocks / scale[..., None]).clamp(-127, 127).to(torch.int8).view(x.shape), scale


def sum__in_32_bits(input: Tensor, dim: Any, **options: Any) -> Tensor:  # noqa: A002
    """What a row adds up to wraps around."""
    return input.sum(dim, dtype=torch.int32, **options).long()


def sort__keys_of_fp64(input: Tensor, dim: int, **options: Any) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Keys are fp64."""
    order = input.double().sort(dim=dim, stable=True, **options).indices
    return input.gather(dim, order), order


def expm1__cancels(input: Tensor) -> Tensor:  # noqa: A002
    """Of small numbers exp has lost the digits."""
    return input.exp() - 1


def var__one_pass(input: Tensor, dim: int, unbiased: bool = True, keepdim: bool = False) -> Tensor:  # noqa: A002
    """The mean of squares less the square of the mean."""
    if not isinstance(dim, int):
        raise NotImplementedError("one dimension")
    mean, count = input.mean(dim, keepdim=keepdim), input.shape[dim]
    return (input.square().mean(dim, keepdim=keepdim) - mean.square()) * (count / max(1, count - unbiased))
