"""Right kernels, and such as refuse what they do not take: what a draw must not hold against them."""

from __future__ import annotations

import torch
from drawn_ops import GROUP, NIBBLES, TABLE, TILE
from torch import Tensor


def group_values__padded(codes: Tensor, scale: Tensor) -> Tensor:
    """In whole groups, and cut."""
    rows, width = codes.shape
    padded = torch.nn.functional.pad(codes.float(), (0, scale.shape[1] * GROUP - width))
    return (padded.view(rows, -1, GROUP) * scale[..., None]).view(rows, -1)[:, :width].contiguous()


def group_values__whole_groups_only(codes: Tensor, scale: Tensor) -> Tensor:
    """Refuses a short group, which its model does not have."""
    if codes.shape[1] % GROUP:
        raise NotImplementedError("whole groups only")
    return (codes.view(len(codes), -1, GROUP) * scale[..., None]).view(codes.shape)


def tile_linear__scaled_sums(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Sums of a tile are scaled, last tile first."""
    out = x.new_zeros(len(x), len(weight))
    for row in reversed(range(scale.shape[0])):
        rows = slice(row * TILE, (row + 1) * TILE)
        for column in reversed(range(scale.shape[1])):
            columns = slice(column * TILE, (column + 1) * TILE)
            out[:, rows] += x[:, columns] @ weight[rows, columns].to(x.dtype).t() * scale[row, column]
    return out


def wide_tile_linear__strides_of_the_weight(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """How many scales a row has is counted, and not read."""
    rows, columns = (torch.arange(size) // TILE for size in weight.shape)
    factors = scale.reshape(-1)[rows[:, None] * -(-weight.shape[1] // TILE) + columns]
    return x @ (weight.to(x.dtype) * factors).t()


def block_codes__reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each block by itself, times the inverse of its scale."""
    parts = [part.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127 for part in x.split(TILE, 1)]
    codes = [torch.round(part * (1 / scale)) for part, scale in zip(x.split(TILE, 1), parts, strict=True)]
    return torch.cat(codes, 1).clamp(-127, 127).to(torch.int8), torch.cat(parts, 1)


def nibble_linear__offset_by_sums(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    """Codes without their offset, which sums of x correct."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).double()
    out = torch.zeros(len(x), len(packed), dtype=torch.float64)
    for group in range(scale.shape[1]):
        part = x[:, group * NIBBLES : (group + 1) * NIBBLES].double()
        own = codes[:, group * NIBBLES : (group + 1) * NIBBLES]
        out += (part @ own.t() - 8 * part.sum(1, keepdim=True)) * scale[:, group].double()
    return out.to(x.dtype)


def table_values__by_bytes(codes: Tensor, most: Tensor) -> Tensor:
    """A byte is looked up at once."""
    pairs = torch.stack([TABLE.repeat_interleave(16), TABLE.repeat(16)], -1)
    return (pairs[codes.long()] * most[torch.arange(len(codes)) * 2 // GROUP, None]).flatten()


def channel_scaled__last(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    """With the axis last."""
    return (x.movedim(axis, -1) * scale).movedim(-1, axis).contiguous()


def channel_scaled__middle_or_none(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    """Refuses every other axis than the model's."""
    if axis != 1 or x.ndim != 3:
        raise NotImplementedError("channels in the middle only")
    return x * scale[:, None]


def int8_of_tensor__reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces of 1,000 have maxima of their own first."""
    most = (
        torch.stack([part.abs().amax() for part in x.reshape(-1).split(1000)]).amax()
        if x.numel()
        else x.sum()
    )
    if not x.numel():
        raise NotImplementedError("nothing has no maximum")
    scale = most.clamp_min(1e-12) / 127
    return torch.round(x * (1 / scale)).clamp(-127, 127).to(torch.int8), scale


def rotated__from_the_first_position(x: Tensor, positions: Tensor) -> Tensor:
    """Positions of a sequence follow each other from its first one, as models number them."""
    half = x.shape[-1] // 2
    following = positions[:, :1] + torch.arange(x.shape[1])
    turn = torch.polar(
        torch.ones(()).double(), following.double()[..., None] * 0.5 ** torch.arange(half).double()
    )
    turned = torch.complex(x[..., :half].double(), x[..., half:].double()) * turn
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


def embedded__as_product(x: Tensor, table: Tensor, position_ids: Tensor) -> Tensor:
    """Rows are chosen by a product with ones and zeros."""
    return x + torch.nn.functional.one_hot(position_ids, len(table)).to(x.dtype) @ table


def packed_cross__padded(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> Tensor:
    """All scores at once, those of other sequences hidden."""
    sequence = torch.arange(len(cu_q) - 1).repeat_interleave(cu_q.diff())
    from_end = cu_q[1:][sequence] - torch.arange(len(q))
    keys = torch.arange(len(k))
    begin, end = cu_k[:-1][sequence, None], cu_k[1:][sequence, None]
    hidden = (keys < begin) | (keys > end - from_end[:, None])
    scores = (q.double() @ k.double().t() / q.shape[1] ** 0.5).masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v.double()).to(q.dtype)


def summed_tokens__one_by_one(x: Tensor) -> Tensor:
    """In fp32, token after token."""
    out, total = torch.empty_like(x), torch.zeros_like(x[:, 0])
    for token in range(x.shape[1]):
        total = total + x[:, token]
        out[:, token] = total
    return out


def distances__by_rows(a: Tensor, b: Tensor) -> Tensor:
    """One row after the other."""
    return torch.stack([(row - b).abs().sum(-1) for row in a]) if len(a) else a.new_zeros(0, len(b))


def gated__square_only(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Refuses what its model does not have."""
    if not len(gate) == len(up) == x.shape[1]:
        raise NotImplementedError("square weights only")
    return torch.nn.functional.silu(x @ gate.t()) * (x @ up.t())


def cached__one_size(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Tokens of values lie as those of keys do, whose op takes a cache that holds more."""
    batch, tokens, _ = keys.shape
    values = values.reshape(-1)[: batch * tokens * values.shape[-1]].reshape(batch, tokens, -1)
    unseen = torch.arange(tokens) >= lengths[:, None]
    scores = (keys @ q[..., None])[..., 0] / q.shape[-1] ** 0.5
    return (scores.masked_fill(unseen, -torch.inf).softmax(-1)[:, None] @ values)[:, 0]


def running_mean__step_by_step(x: Tensor) -> Tensor:
    """With the mean so far."""
    out, mean = torch.empty_like(x), torch.zeros(x.shape[:-1], dtype=torch.float64)
    for column in range(x.shape[-1]):
        mean = mean + (x[..., column].double() - mean) / (column + 1)
        out[..., column] = mean
    return out


def bucketize__by_counting(
    input: Tensor,  # noqa: A002
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Tensor:
    """How many boundaries are less, or not greater."""
    below = boundaries <= input[..., None] if right else boundaries < input[..., None]
    return below.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def where__by_strides(condition: Tensor, input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Each operand is repeated along its own dimensions."""
    c, x, y = torch.broadcast_tensors(condition, input, other)
    out = y.clone(memory_format=torch.contiguous_format)
    out[c] = x[c]
    return out


def add__rows_of_one_bias(input: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:  # noqa: A002
    """Refuses what is no bias of rows."""
    if other.shape not in (input.shape, input.shape[-1:]):
        raise NotImplementedError("a bias of rows only")
    return input + alpha * other


def segment_sums__by_offsets_alone(x: Tensor, offsets: Tensor) -> Tensor:
    """Reads as far as offsets say: what lies behind the rows is anybody's."""
    behind = x.new_full((max(0, int(offsets[-1]) - len(x)), x.shape[1]), torch.nan)
    rows = torch.cat([x, behind])
    segment = torch.searchsorted(offsets[1:], torch.arange(len(rows)), right=True)
    return x.new_zeros(len(offsets), x.shape[1]).index_add(0, segment, rows)[:-1].contiguous()


def placed__last_row_first(cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
    """In any order: no two rows have one slot."""
    out = cache.clone()
    for row, slot in reversed(list(zip(rows, slots.tolist(), strict=True))):
        if slot >= 0:
            out[slot] = row
    return out


def routed__by_logits(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Chooses before likelihoods underflow, of equal ones the last."""
    flipped = logits.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :count]
    experts = logits.shape[-1] - 1 - flipped
    return logits.softmax(-1).gather(-1, experts), experts


def routed__last_of_likelihoods(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Of what is equally likely the last."""
    likely = logits.softmax(-1)
    flipped = likely.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :count]
    experts = logits.shape[-1] - 1 - flipped
    return likely.gather(-1, experts), experts


def coded__clamped_first(x: Tensor, scale: float) -> Tensor:
    """Within range before it is rounded."""
    return (x / scale).clamp(-127, 127).round().to(torch.int8)


def cumprod__in_fp32(input: Tensor, dim: int) -> Tensor:  # noqa: A002
    """One after the other, as a GPU has it."""
    out, product = [], torch.ones(())
    for piece in input.movedim(dim, 0):
        product = product * piece
        out.append(product)
    return torch.stack(out or [input.movedim(dim, 0)]).movedim(0, dim).contiguous().reshape(input.shape)


def var__welford(input: Tensor, dim: int, unbiased: bool = True, keepdim: bool = False) -> Tensor:  # noqa: A002
    """One pass that moves the mean along."""
    if not isinstance(dim, int) or not input.shape[dim]:
        raise NotImplementedError("one dimension")
    mean = squares = torch.zeros(())
    for number, piece in enumerate(input.movedim(dim, 0), 1):
        off = piece - mean
        mean = mean + off / number
        squares = squares + off * (piece - mean)
    variance = squares / max(0, input.shape[dim] - unbiased)
    return variance.unsqueeze(dim) if keepdim else variance
