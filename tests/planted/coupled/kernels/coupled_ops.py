"""Ops whose arguments belong together, as a model would write them; the kernels of this folder replace them."""

import itertools

import torch
from torch import Tensor
from torch.nn import functional

import pytest_cgins


@pytest_cgins.mark
def varlen_mean(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The mean of each sequence, packed one behind the other; 0 for an empty one."""
    ends = cu_seqlens.tolist()
    rows = [x[start:end] for start, end in itertools.pairwise(ends)]
    return torch.stack([row.mean(0) if len(row) else x.new_zeros(x.shape[1]) for row in rows])


@pytest_cgins.mark
def varlen_attention(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """Causal attention within each of the packed sequences: (tokens, heads, width)."""
    out = torch.empty_like(q)
    ends = cu_seqlens.tolist()
    for start, end in itertools.pairwise(ends):
        if end - start > max_seqlen:
            raise ValueError(f"a sequence of {end - start}, beyond {max_seqlen}")
        parts = [tensor[start:end].movedim(1, 0) for tensor in (q, k, v)]
        out[start:end] = functional.scaled_dot_product_attention(*parts, is_causal=True).movedim(0, 1)
    return out


@pytest_cgins.mark
def paged_attention(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Attention of a query a sequence, (sequences, width), to keys that lie in pages: (pages, page, width).

    A sequence without keys gets 0.
    """
    out = torch.zeros_like(q)
    for row, length in enumerate(lengths.tolist()):
        if length:
            own_keys, own_values = (
                cache[table[row].long()].flatten(0, 1)[:length] for cache in (keys, values)
            )
            scores = (own_keys @ q[row]) / q.shape[1] ** 0.5
            out[row] = scores.softmax(0) @ own_values
    return out


@pytest_cgins.mark
def mixture(x: Tensor, weight: Tensor, experts: Tensor, gates: Tensor) -> Tensor:
    """A linear layer of each token's experts, (tokens, k), summed by its gates; weight: (experts, out, in)."""
    return torch.einsum("tkoi,ti,tk->to", weight[experts], x, gates)


@pytest_cgins.mark
def expert_means(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    """The mean of the tokens of each expert, or 0, and its bias: (experts, width)."""
    sums = torch.zeros_like(bias).index_add(0, experts, x)
    counts = torch.bincount(experts, minlength=len(bias)).clamp_min(1)
    return sums / counts[:, None] + bias


@pytest_cgins.mark
def expert_sums(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    """The tokens of each expert added to its bias: (experts, width)."""
    return bias.index_add(0, experts, x)


@pytest_cgins.mark
def last_token(x: Tensor, lengths: Tensor) -> Tensor:
    """The last token of each padded sequence: (sequences, most, width); 0 of an empty one."""
    last = x[torch.arange(len(x)), (lengths - 1).clamp_min(0)]
    return torch.where((lengths > 0)[:, None], last, 0.0)


@pytest_cgins.mark
def write_slots(cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
    """A copy of the cache with rows written to their slots, which are distinct."""
    return cache.index_copy(0, slots, rows)


@pytest_cgins.mark
def levels(x: Tensor, edges: Tensor) -> Tensor:
    """How many of the edges, which are in order, each element has passed, as a number."""
    return torch.searchsorted(edges, x).to(x.dtype)
