"""Decoding from pages, as a reference of a trace set has it: what belongs together is told by the names of arguments alone."""

import torch
from torch import Tensor

import pytest_cgins


@pytest_cgins.mark
def run(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    kv_last_page_len: Tensor,
    sm_scale: float,
) -> Tensor:
    """A query, (sequences, width), to the keys of its pages, (pages, page, width); 0 of a sequence without pages."""
    out = torch.zeros_like(q)
    for row in range(len(q)):
        pages = kv_indices[int(kv_indptr[row]) : int(kv_indptr[row + 1])].long()
        last = int(kv_last_page_len[row])
        if not 1 <= last <= k_cache.shape[1]:
            raise ValueError(f"{last} tokens on the last page")
        if len(pages):
            count = (len(pages) - 1) * k_cache.shape[1] + last
            keys, values = (cache[pages].flatten(0, 1)[:count] for cache in (k_cache, v_cache))
            out[row] = (keys @ q[row] * sm_scale).softmax(0) @ values
    return out


def run_calls() -> None:
    """Each sequence has two pages, in order."""
    generator = torch.Generator().manual_seed(9)
    q, keys, values = (torch.randn(shape, generator=generator) for shape in ((4, 8), (16, 4, 8), (16, 4, 8)))
    indptr, indices = torch.arange(0, 9, 2, dtype=torch.int32), torch.arange(8, dtype=torch.int32)
    run(q, keys, values, indptr, indices, torch.full((4,), 3, dtype=torch.int32), 0.35)
