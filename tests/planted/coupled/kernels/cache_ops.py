"""Ops on packed queries beside longer keys, on padded page tables, and on buffers longer than what is packed in them."""

import itertools

import torch
from torch import Tensor

import pytest_cgins


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of (queries, heads, width): the last query sees the last key.

    Raises:
        ValueError: there are fewer keys than queries.
    """
    if len(q) > len(k):
        raise ValueError(f"{len(q)} queries and {len(k)} keys")
    seen = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).tril(len(k) - len(q))
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


@pytest_cgins.mark
def cached_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """Causal attention of the last tokens of each sequence to all of its tokens: (tokens, heads, width)."""
    out = torch.zeros_like(q)
    rows = zip(itertools.pairwise(cu_q.tolist()), itertools.pairwise(cu_k.tolist()), strict=True)
    for (start, end), (first, last) in rows:
        if end - start > max_q or last - first > max_k:
            raise ValueError(f"sequences of {end - start} and {last - first}, beyond {max_q} and {max_k}")
        out[start:end] = attend(q[start:end], k[first:last], v[first:last])
    return out


@pytest_cgins.mark
def paged_prefill(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, table: Tensor, seq_lens: Tensor
) -> Tensor:
    """The same, with keys in pages, (pages, page, heads, width), and -1 behind the pages of a sequence."""
    out = torch.zeros_like(q)
    for row, (start, end) in enumerate(itertools.pairwise(cu_q.tolist())):
        length = int(seq_lens[row])
        pages = table[row, : -(-length // keys.shape[1])].long()
        if len(pages) and int(pages.min()) < 0:
            raise ValueError(f"sequence {row} of {length} has pages {table[row].tolist()}")
        own_keys, own_values = (cache[pages].flatten(0, 1)[:length] for cache in (keys, values))
        out[start:end] = attend(q[start:end], own_keys, own_values)
    return out


@pytest_cgins.mark
def packed_softmax(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Softmax along the tokens of each sequence; 0 of the tokens behind the last one, of which there is one at least."""
    out = torch.zeros_like(x)
    ends = cu_seqlens.tolist()
    if ends[-1] >= len(x):
        raise ValueError(f"no token behind {ends[-1]}")
    for start, end in itertools.pairwise(ends):
        out[start:end] = x[start:end].softmax(0)
    return out


def run_calls() -> None:
    """Sequences of one length, in pages in order."""
    generator = torch.Generator().manual_seed(8)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def offsets(total: int, step: int) -> Tensor:
        return torch.arange(0, total + 1, step, dtype=torch.int32)

    keys = normal(36, 2, 8), normal(36, 2, 8)
    cached_attention(normal(18, 2, 8), *keys, offsets(18, 3), offsets(36, 6), 8, 16)
    table = torch.tensor([[0, 1, 2, -1], [3, 4, -1, -1], [5, 6, 7, -1], [8, 9, -1, -1]], dtype=torch.int32)
    pages = normal(16, 4, 2, 8), normal(16, 4, 2, 8)
    lengths = torch.tensor([9, 7, 10, 6], dtype=torch.int32)
    paged_prefill(normal(12, 2, 8), *pages, offsets(12, 3), table, lengths)
    packed_softmax(normal(24, 5), offsets(20, 4))
