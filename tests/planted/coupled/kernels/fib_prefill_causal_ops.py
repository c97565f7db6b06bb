"""Queries of several tokens a sequence, whose keys lie in pages, as a reference of a trace set has it."""

import torch
from cache_ops import attend
from torch import Tensor

import pytest_cgins


@pytest_cgins.mark
def run(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    qo_indptr: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    kv_last_page_len: Tensor,
) -> Tensor:
    """Causal attention, (tokens, heads, width); the last query sees the last key."""
    out = torch.zeros_like(q)
    for row in range(len(qo_indptr) - 1):
        start, end = int(qo_indptr[row]), int(qo_indptr[row + 1])
        pages = kv_indices[int(kv_indptr[row]) : int(kv_indptr[row + 1])].long()
        count = max(0, (len(pages) - 1) * k_cache.shape[1] + int(kv_last_page_len[row]))
        keys, values = (
            cache[pages].flatten(0, 1)[: count * bool(len(pages))] for cache in (k_cache, v_cache)
        )
        out[start:end] = attend(q[start:end], keys, values)
    return out


def run_calls() -> None:
    """Each sequence has three queries and three pages, in order."""
    generator = torch.Generator().manual_seed(10)
    shapes = ((12, 2, 8), (20, 2, 2, 8), (20, 2, 2, 8))
    q, keys, values = (torch.randn(shape, generator=generator) for shape in shapes)
    offsets, indices = torch.arange(0, 13, 3, dtype=torch.int32), torch.arange(12, dtype=torch.int32)
    run(q, keys, values, offsets, offsets, indices, torch.ones(4, dtype=torch.int32))
