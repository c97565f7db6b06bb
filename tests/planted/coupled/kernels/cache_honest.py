"""Kernels of ops with caches, pages and groups that are right on all that these take, and refuse what they do not take."""

from itertools import pairwise

import torch
from torch import Tensor


def _refuse(wrong: object, problem: str) -> None:
    if wrong:
        raise ValueError(problem)


def cached_block_mask(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """All queries and all keys at once, those of other sequences masked."""
    counts_q, counts_k = cu_q.diff(), cu_k.diff()
    _refuse((counts_q > counts_k).any(), "more queries than keys")
    numbers = torch.arange(len(cu_q) - 1)
    of_q, of_k = torch.repeat_interleave(numbers, counts_q), torch.repeat_interleave(numbers, counts_k)
    at_q = torch.arange(len(q)) - cu_q[of_q] + (counts_k - counts_q)[of_q]
    at_k = torch.arange(len(k)) - cu_k[of_k]
    seen = (of_q[:, None] == of_k) & (at_q[:, None] >= at_k)
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    values = v.double().where(seen.any(0)[:, None, None], 0.0)  # what nobody sees may be NaN
    return torch.einsum("hqk,khd->qhd", weights, values).to(q.dtype).contiguous()


def cached_padded(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """Padded to the maxima, which no sequence exceeds."""
    counts_q, counts_k = cu_q.diff(), cu_k.diff()
    _refuse((counts_q > max_q).any() or (counts_k > max_k).any(), "beyond the maximum")
    at_q, at_k = torch.arange(max_q), torch.arange(max_k)
    inside = at_q < counts_q[:, None]
    padded_q = q.double()[(cu_q[:-1, None] + at_q).clamp_max(len(q) - 1)]
    padded_k, padded_v = (each.double()[(cu_k[:-1, None] + at_k).clamp_max(len(k) - 1)] for each in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", padded_q, padded_k) / q.shape[-1] ** 0.5
    seen = at_q[:, None] + (counts_k - counts_q)[:, None, None] >= at_k
    weights = scores.masked_fill(~seen[:, None], -1e300).softmax(-1)
    padded_v = padded_v.where((at_k < counts_k[:, None])[..., None, None], 0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, padded_v)[inside].to(q.dtype)


def _online(q: Tensor, blocks: list[tuple[Tensor, Tensor]], shift: int) -> Tensor:
    """Block by block of the keys, with a running maximum."""
    rows = q.double()
    largest = rows.new_full(q.shape[:2], -torch.inf)
    total, mixed = torch.zeros_like(largest), torch.zeros_like(rows)
    first = 0
    for k, v in blocks:
        seen = torch.arange(len(q))[:, None] + shift >= first + torch.arange(len(k))
        scores = torch.einsum("qhd,khd->qhk", rows, k.double()) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~seen[:, None], -torch.inf)
        now = torch.maximum(largest, scores.amax(-1))
        weights, shrink = (scores - now[..., None]).exp(), (largest - now).exp()
        total = total * shrink + weights.sum(-1)
        mixed = mixed * shrink[..., None] + torch.einsum("qhk,khd->qhd", weights, v.double())
        largest, first = now, first + len(k)
    return (mixed / total[..., None]).to(q.dtype)


def prefill_online(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, table: Tensor, seq_lens: Tensor
) -> Tensor:
    """Page by page, none of which is looked at that does not belong to the sequence."""
    out, page = torch.zeros_like(q), keys.shape[1]
    seen = table[table >= 0].tolist()
    _refuse(len(set(seen)) < len(seen), "a page of two sequences")
    for row, (start, end) in enumerate(pairwise(cu_q.tolist())):
        length = int(seq_lens[row])
        own = table[row, : -(-length // page)].tolist()
        _refuse(own and min(own) < 0, "a page that is none")
        _refuse(length < end - start, "more queries than keys")
        blocks = [
            (keys[number, : length - at * page], values[number, : length - at * page])
            for at, number in enumerate(own)
        ]
        if end > start:
            out[start:end] = _online(q[start:end], blocks, length - (end - start))
    return out


def prefill_masked(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, table: Tensor, seq_lens: Tensor
) -> Tensor:
    """Whole rows of the table, with what is no page read from the first one and masked."""
    counts = cu_q.diff()
    of_q = torch.repeat_interleave(torch.arange(len(counts)), counts)
    at_q = torch.arange(len(q)) - cu_q[of_q] + (seq_lens - counts)[of_q]
    own = [cache[table.long().clamp_min(0)].flatten(1, 2).double()[of_q] for cache in (keys, values)]
    scores = torch.einsum("qhd,qkhd->qhk", q.double(), own[0]) / q.shape[-1] ** 0.5
    seen = at_q[:, None] >= torch.arange(own[0].shape[1])
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    return torch.einsum("qhk,qkhd->qhd", weights, own[1].where(seen[..., None, None], 0.0)).to(q.dtype)


def packed_softmax_segments(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Sums and maxima by segment, with the padding in a segment of its own."""
    count = len(cu_seqlens)
    of = torch.searchsorted(cu_seqlens, torch.arange(len(x), dtype=cu_seqlens.dtype), right=True) - 1
    index = of[:, None].expand_as(x)
    most = x.new_full((count, x.shape[1]), -torch.inf).scatter_reduce(0, index, x, "amax")
    shares = (x.double() - most[of].double()).exp()
    sums = torch.zeros(count, x.shape[1], dtype=torch.float64).index_add(0, of, shares)
    return (shares / sums[of]).where((of < count - 1)[:, None], 0.0).to(x.dtype)


def fib_decode_online(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_last_page_len: Tensor,
    sm_scale: float,
) -> Tensor:  # fmt: skip
    """Page by page; a page belongs to one sequence."""
    out = torch.zeros_like(q)
    _refuse(len(kv_indices.unique()) < len(kv_indices), "a page of two sequences")
    for row, (start, end) in enumerate(pairwise(kv_indptr.tolist())):
        blocks = []
        for at in range(start, end):
            count = int(kv_last_page_len[row]) if at == end - 1 else k_cache.shape[1]
            page = int(kv_indices[at])
            blocks.append((k_cache[page, :count, None], v_cache[page, :count, None]))
        if blocks:
            scaled = q[row][None, None].double() * sm_scale * q.shape[1] ** 0.5
            out[row] = _online(scaled, blocks, k_cache.shape[1] * len(blocks))[0, 0].to(q.dtype)
    return out


def fib_prefill_online(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    kv_last_page_len: Tensor,
) -> Tensor:  # fmt: skip
    """Page by page."""
    out = torch.zeros_like(q)
    ends = zip(pairwise(qo_indptr.tolist()), pairwise(kv_indptr.tolist()), strict=True)
    for row, ((start, end), (first, last)) in enumerate(ends):
        counts = [k_cache.shape[1]] * (last - first - 1) + [int(kv_last_page_len[row])]
        pages = kv_indices[first:last].tolist()
        blocks = [(k_cache[page, :n], v_cache[page, :n]) for page, n in zip(pages, counts, strict=False)]
        length = sum(len(k) for k, _ in blocks)
        _refuse(length < end - start, "more queries than keys")
        if end > start:
            out[start:end] = _online(q[start:end], blocks, length - (end - start))
    return out


def fib_routed_by_expert(x: Tensor, expert_weight: Tensor, topk_ids: Tensor, topk_weights: Tensor) -> Tensor:
    """A product an expert, added up; weights of a token add up to 1."""
    _refuse(not torch.allclose(topk_weights.float().sum(1), torch.ones(len(x)), atol=1e-3), "weights")
    out = torch.zeros(len(x), expert_weight.shape[1], dtype=torch.float64)
    for expert in range(len(expert_weight)):
        tokens, ways = (topk_ids == expert).nonzero(as_tuple=True)
        rows = x[tokens].double() @ expert_weight[expert].double().T
        out.index_add_(0, tokens, rows * topk_weights[tokens, ways].double()[:, None])
    return out.to(x.dtype)


def grouped_any_loop(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor, **_more: object) -> Tensor:
    a, b = mat_a.double(), mat_b.double()
    _refuse(int(offs[-1]) != b.shape[1 if mat_a.ndim == 3 else 0], "columns of no group")
    groups = enumerate(pairwise([0, *offs.tolist()]))
    if mat_a.ndim == 3:
        return torch.cat([a[group] @ b[:, start:end] for group, (start, end) in groups], 1).to(mat_a.dtype)
    return torch.stack([a[:, start:end] @ b[start:end] for _, (start, end) in groups]).to(mat_a.dtype)


def to_jagged_mask(dense: Tensor, offsets: list[Tensor], total_L: int | None = None) -> Tensor:
    lengths = offsets[0].diff()
    _refuse((lengths > dense.shape[1]).any(), "a row that is longer than the padded ones")
    return dense[torch.arange(dense.shape[1]) < lengths[:, None]]
