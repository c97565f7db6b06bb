"""Kernels that are right on the recorded calls, and wrong on other arguments that belong together."""

import itertools

import torch
from torch import Tensor


def varlen_mean_empty_divides(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """An empty sequence divides by zero."""
    total = torch.cat([x.new_zeros(1, x.shape[1]), x.double().cumsum(0)])
    sums = total[cu_seqlens[1:]] - total[cu_seqlens[:-1]]
    return (sums / cu_seqlens.diff()[:, None]).to(x.dtype)


def varlen_mean_equal_lengths(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """All sequences are taken to be as long as the first."""
    count, length = len(cu_seqlens) - 1, int(cu_seqlens[1])
    starts = (torch.arange(count) * length).clamp_max(len(x) - 1)
    return torch.stack([x[start : start + length].sum(0) / max(1, length) for start in starts.tolist()])


def varlen_mean_distinct_offsets(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Offsets that repeat are lost, so the sequences behind an empty one move up, and the last ones are missing."""
    ends = cu_seqlens.unique().tolist()
    out = x.new_zeros(len(cu_seqlens) - 1, x.shape[1])
    for row, (start, end) in enumerate(itertools.pairwise(ends)):
        out[row] = x[start:end].sum(0) / (end - start)
    return out


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    hidden = torch.ones(len(q), len(k), dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v.double()).to(q.dtype)


def varlen_attention_skips_single(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    """A sequence of one token is left as zeros."""
    out = torch.zeros_like(q)
    ends = cu_seqlens.tolist()
    for start, end in itertools.pairwise(ends):
        if end - start > 1:
            out[start:end] = _attention(q[start:end], k[start:end], v[start:end])
    return out


def varlen_attention_first_is_longest(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    """Tokens beyond the length of the first sequence are left as zeros."""
    out = torch.zeros_like(q)
    ends = cu_seqlens.tolist()
    for start, end in itertools.pairwise(ends):
        stop = min(end, start + ends[1])
        if stop > start:
            out[start:stop] = _attention(q[start:stop], k[start:stop], v[start:stop])
    return out


def _decode(q: Tensor, keys: Tensor, values: Tensor, row: int, own: Tensor, length: int) -> Tensor:
    if not length:
        return torch.zeros_like(q[row])
    flat_keys, flat_values = (cache[own].flatten(0, 1)[:length].double() for cache in (keys, values))
    weights = (flat_keys @ q[row].double() / q.shape[1] ** 0.5).softmax(0)
    return (weights @ flat_values).to(q.dtype)


def paged_attention_pages_in_order(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor
) -> Tensor:
    """The table is not looked at: each sequence's pages are taken to follow those of the one before."""
    each = table.shape[1]
    own = [torch.arange(row * each, (row + 1) * each) % len(keys) for row in range(len(q))]
    pairs = enumerate(lengths.tolist())
    return torch.stack([_decode(q, keys, values, row, own[row], length) for row, length in pairs])


def paged_attention_loses_full_page(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor
) -> Tensor:
    """All but the last page are whole, and the last one holds the remainder: nothing, where a sequence ends on a page."""
    page = keys.shape[1]
    seen = [max(0, length - 1) // page * page + length % page for length in lengths.tolist()]
    return torch.stack(
        [_decode(q, keys, values, row, table[row].long(), length) for row, length in enumerate(seen)]
    )


def mixture_capacity(x: Tensor, weight: Tensor, experts: Tensor, gates: Tensor) -> Tensor:
    """An expert has room for twice its share of the tokens; what comes later is dropped."""
    room = 2 * experts.numel() // len(weight)
    taken = [0] * len(weight)
    out = x.new_zeros(len(x), weight.shape[1], dtype=torch.float64)
    for token, row in enumerate(experts.tolist()):
        for way, expert in enumerate(row):
            if taken[expert] < room:
                taken[expert] += 1
                out[token] += gates[token, way].double() * (weight[expert].double() @ x[token].double())
    return out.to(x.dtype)


def mixture_first_gate(x: Tensor, weight: Tensor, experts: Tensor, gates: Tensor) -> Tensor:
    """All gates are taken to be equal, as they were recorded."""
    each = torch.einsum("tkoi,ti->to", weight[experts].double(), x.double())
    return (each * gates[:, :1].double()).to(x.dtype)


def expert_means_without_tokens(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    """An expert without tokens divides by zero."""
    hot = torch.nn.functional.one_hot(experts, len(bias)).double()
    return ((hot.T @ x.double()) / hot.sum(0)[:, None] + bias).to(x.dtype)


def expert_means_sorted(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    """Tokens are taken to come by expert."""
    bounds = torch.searchsorted(experts.contiguous(), torch.arange(len(bias) + 1)).tolist()
    out = bias.clone()
    for expert, (start, end) in enumerate(itertools.pairwise(bounds)):
        if end > start:
            out[expert] += x[start:end].sum(0) / (end - start)
    return out


def expert_sums_counted_once(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    """Of several tokens of an expert only the last one counts: recorded with as many experts as tokens."""
    out = bias.clone()
    for token, expert in enumerate(experts.tolist()):
        out[expert] = bias[expert] + x[token]
    return out


def last_token_wraps(x: Tensor, lengths: Tensor) -> Tensor:
    """The token before the first is the last of the padding."""
    return x[torch.arange(len(x)), lengths - 1]


def last_token_of_the_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """A sequence is never taken to fill all of its row."""
    most = x.shape[1]
    taken = torch.where(lengths < most, lengths - 1, most - 2)
    out = x[torch.arange(len(x)), taken.clamp_min(0)]
    return torch.where((lengths > 0)[:, None], out, 0.0)


def write_slots_in_order(cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
    """Slots are taken to be neighbours."""
    out, first = cache.clone(), int(slots[0])
    end = min(len(cache), first + len(rows))
    out[first:end] = rows[: end - first]
    return out


def levels_even_steps(x: Tensor, edges: Tensor) -> Tensor:
    """Edges are taken to be at equal distances."""
    step = (edges[-1] - edges[0]) / (len(edges) - 1)
    return ((x - edges[0]) / step).ceil().clamp(0, len(edges))


def segment_reduce_wraps(
    data: Tensor, reduce: str, *, lengths: Tensor, axis: int = 0, unsafe: bool = False
) -> Tensor:
    """Differences of running sums, of which the one before the first is the last: an empty first segment has them all."""
    ends = lengths.cumsum(0)
    at_end = data.double().cumsum(0)[ends - 1]
    return torch.cat([at_end[:1], at_end.diff(dim=0)]).to(data.dtype)


def embedding_bag_last_bag(
    input: Tensor, weight: Tensor, offsets: Tensor, *, mode: str = "mean", **_rest: object
) -> Tensor:
    """The last bag is taken to be as long as the one before."""
    starts = offsets.tolist()
    ends = [*starts[1:], min(len(input), 2 * starts[-1] - starts[-2])]
    rows = [weight[input[start:end]] for start, end in zip(starts, ends, strict=True)]
    return torch.stack([row.sum(0) / max(1, len(row)) for row in rows])


def grouped_equal(self: Tensor, mat2: Tensor, offs: Tensor, *_rest: object, **_more: object) -> Tensor:
    """All groups are taken to be of one size."""
    groups = self.reshape(len(mat2), len(self) // len(mat2), -1)
    return torch.bmm(groups, mat2).flatten(0, 1)
