"""Kernels that are right on the recorded calls of ops with caches, pages and groups, and wrong on others."""

from itertools import pairwise

import torch
from torch import Tensor


def _attend(q: Tensor, k: Tensor, v: Tensor, shift: int) -> Tensor:
    """Query i sees the keys up to i + shift."""
    if not len(q) or not len(k):
        return torch.zeros_like(q)
    seen = torch.arange(len(q))[:, None] + shift >= torch.arange(len(k))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("hqk,khd->qhd", weights, v.double()).to(q.dtype)


def cached_shift_of_first(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """All sequences are taken to have as many cached tokens as the first."""
    out, shift = torch.zeros_like(q), int(cu_k[1] - cu_q[1])
    for (start, end), (first, last) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        out[start:end] = _attend(q[start:end], k[first:last], v[first:last], shift)
    return out


def cached_nothing_cached(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """Where nothing is cached, each query sees all keys."""
    out = torch.zeros_like(q)
    for (start, end), (first, last) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        shift = last - first - (end - start)
        out[start:end] = _attend(q[start:end], k[first:last], v[first:last], shift or len(k))
    return out


def cached_single_query(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """A step of decoding leaves out the newest of the keys before it."""
    out = torch.zeros_like(q)
    for (start, end), (first, last) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        shift = last - first - (end - start)
        seen = slice(first, last - 1 if end - start == 1 and shift else last)
        out[start:end] = _attend(q[start:end], k[seen], v[seen], shift)
    return out


def cached_empty_query(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """Sequences without queries are left out of the queries' offsets, and not of the keys'."""
    out = torch.zeros_like(q)
    for (start, end), (first, last) in zip(
        pairwise(cu_q.unique().tolist()), pairwise(cu_k.tolist()), strict=False
    ):
        shift = last - first - (end - start)
        out[start:end] = _attend(q[start:end], k[first:last], v[first:last], shift)
    return out


def cached_twice_as_long(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """Keys are taken to be twice as many as queries, in each sequence."""
    out = torch.zeros_like(q)
    for start, end in pairwise(cu_q.tolist()):
        out[start:end] = _attend(q[start:end], k[2 * start : 2 * end], v[2 * start : 2 * end], end - start)
    return out


def _paged(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, pages: list[Tensor], lengths: list[int]
) -> Tensor:
    out = torch.zeros_like(q)
    for row, (start, end) in enumerate(pairwise(cu_q.tolist())):
        own = [cache[pages[row].long().clamp(0, len(keys) - 1)].flatten(0, 1) for cache in (keys, values)]
        k, v = (cache[: lengths[row]] for cache in own)
        out[start:end] = _attend(q[start:end], k, v, len(k) - (end - start))
    return out


def prefill_pages_follow(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, table: Tensor, seq_lens: Tensor
) -> Tensor:
    """The pages of a sequence are taken to follow its first."""
    pages = [row[0] + torch.arange(len(row)) for row in table]
    return _paged(q, keys, values, cu_q, pages, seq_lens.tolist())


def prefill_loses_full_page(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, table: Tensor, seq_lens: Tensor
) -> Tensor:
    """The last page has the remainder: nothing, where a sequence ends on a page."""
    page = keys.shape[1]
    seen = [max(0, length - 1) // page * page + length % page for length in seq_lens.tolist()]
    return _paged(q, keys, values, cu_q, list(table), seen)


def prefill_fills_its_pages(
    q: Tensor, keys: Tensor, values: Tensor, cu_q: Tensor, table: Tensor, seq_lens: Tensor
) -> Tensor:
    """A sequence is taken to reach to the last page that the table has for it."""
    page = keys.shape[1]
    count = (table >= 0).sum(1).tolist()
    reached = [
        (pages - 1) * page + (length % page or page)
        for pages, length in zip(count, seq_lens.tolist(), strict=True)
    ]
    return _paged(q, keys, values, cu_q, list(table), reached)


def packed_softmax_at_most_twice(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Tokens beyond twice the usual length are left as zeros."""
    out = torch.zeros_like(x)
    ends = cu_seqlens.tolist()
    most = 2 * ends[-1] // (len(ends) - 1)
    for start, end in pairwise(ends):
        out[start : min(end, start + most)] = x[start:end].softmax(0)[:most]
    return out


def packed_softmax_single(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    """A sequence of one token is left as zeros, as if it were padding."""
    out = torch.zeros_like(x)
    for start, end in pairwise(cu_seqlens.tolist()):
        if end - start > 1:
            out[start:end] = x[start:end].softmax(0)
    return out


def _decoded(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, pages: list[Tensor], last: list[int], by: float
) -> Tensor:
    out = torch.zeros_like(q)
    for row, own in enumerate(pages):
        count = (len(own) - 1) * k_cache.shape[1] + last[row]
        keys, values = (
            cache[own.long()].flatten(0, 1)[: max(0, count)].double() for cache in (k_cache, v_cache)
        )
        if len(keys):
            out[row] = ((keys @ q[row].double() * by).softmax(0) @ values).to(q.dtype)
    return out


def _rows(values: Tensor, indptr: Tensor) -> list[Tensor]:
    return [values[start:end] for start, end in pairwise(indptr.tolist())]


def fib_decode_in_order(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_last_page_len: Tensor,
    sm_scale: float,
) -> Tensor:  # fmt: skip
    """Pages are taken to lie in order."""
    pages = _rows(torch.arange(len(kv_indices)), kv_indptr)
    return _decoded(q, k_cache, v_cache, pages, kv_last_page_len.tolist(), sm_scale)


def fib_decode_equal_pages(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_last_page_len: Tensor,
    sm_scale: float,
) -> Tensor:  # fmt: skip
    """Each sequence is taken to have as many pages as the first."""
    pages = list(kv_indices.reshape(len(q), -1))
    return _decoded(q, k_cache, v_cache, pages, kv_last_page_len.tolist(), sm_scale)


def fib_decode_loses_full_page(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_last_page_len: Tensor,
    sm_scale: float,
) -> Tensor:  # fmt: skip
    """A last page that is full is taken to be empty."""
    last = (kv_last_page_len % k_cache.shape[1]).tolist()
    return _decoded(q, k_cache, v_cache, _rows(kv_indices, kv_indptr), last, sm_scale)


def fib_prefill_shift_of_first(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    kv_last_page_len: Tensor,
) -> Tensor:  # fmt: skip
    """All sequences are taken to have as many tokens before their queries as the first."""
    out, page, shift = torch.zeros_like(q), k_cache.shape[1], None
    pages = _rows(kv_indices, kv_indptr)
    for row, (start, end) in enumerate(pairwise(qo_indptr.tolist())):
        count = max(0, (len(pages[row]) - 1) * page + int(kv_last_page_len[row]))
        k, v = (cache[pages[row].long()].flatten(0, 1)[:count] for cache in (k_cache, v_cache))
        shift = count - (end - start) if shift is None else shift
        out[start:end] = _attend(q[start:end], k, v, shift)
    return out


def fib_prefill_full_pages(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    kv_last_page_len: Tensor,
) -> Tensor:  # fmt: skip
    """A last page is taken to have one token."""
    out, page = torch.zeros_like(q), k_cache.shape[1]
    pages = _rows(kv_indices, kv_indptr)
    for row, (start, end) in enumerate(pairwise(qo_indptr.tolist())):
        count = max(0, (len(pages[row]) - 1) * page + 1)
        k, v = (cache[pages[row].long()].flatten(0, 1)[:count] for cache in (k_cache, v_cache))
        out[start:end] = _attend(q[start:end], k, v, count - (end - start))
    return out


def fib_routed_first_weight(
    x: Tensor, expert_weight: Tensor, topk_ids: Tensor, topk_weights: Tensor
) -> Tensor:
    """All weights of a token are taken to be equal."""
    each = torch.einsum("tkoi,ti->to", expert_weight[topk_ids.long()].double(), x.double())
    return (each * topk_weights[:, :1].double()).to(x.dtype)


def fib_routed_capacity(x: Tensor, expert_weight: Tensor, topk_ids: Tensor, topk_weights: Tensor) -> Tensor:
    """An expert has room for twice its share of the tokens; what comes later is dropped."""
    room = 2 * topk_ids.numel() // len(expert_weight)
    out = x.new_zeros(len(x), expert_weight.shape[1], dtype=torch.float64)
    for expert in range(len(expert_weight)):
        tokens, ways = ((topk_ids == expert).nonzero(as_tuple=True)[i][:room] for i in (0, 1))
        rows = x[tokens].double() @ expert_weight[expert].double().T
        out.index_add_(0, tokens, rows * topk_weights[tokens, ways].double()[:, None])
    return out.to(x.dtype)


def _groups(offs: Tensor) -> list[tuple[int, int]]:
    return list(pairwise([0, *offs.tolist()]))


def grouped_any_equal_columns(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor, **_more: object) -> Tensor:
    """Groups of columns are taken to be of one size."""
    a, b = mat_a.double(), mat_b.double()
    if mat_a.ndim == 3:
        parts = b.unflatten(1, (len(a), -1)).movedim(1, 0)
        return torch.bmm(a, parts).movedim(0, 1).flatten(1).to(mat_a.dtype).contiguous()
    return torch.stack([a[:, start:end] @ b[start:end] for start, end in _groups(offs)]).to(mat_a.dtype)


def grouped_any_equal_shared(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor, **_more: object) -> Tensor:
    """Groups of what is summed over are taken to be of one size."""
    a, b = mat_a.double(), mat_b.double()
    if mat_a.ndim == 3:
        parts = [a[group] @ b[:, start:end] for group, (start, end) in enumerate(_groups(offs))]
        return torch.cat(parts, 1).to(mat_a.dtype)
    columns = a.unflatten(1, (len(offs), -1)).movedim(1, 0)
    return torch.bmm(columns, b.unflatten(0, (len(offs), -1))).to(mat_a.dtype)


def to_jagged_equal(dense: Tensor, offsets: list[Tensor], total_L: int | None = None) -> Tensor:
    """Rows are taken to be of one length."""
    length = int(offsets[0][1])
    kept = dense[:, :length].flatten(0, 1)
    total = int(offsets[0][-1])
    return torch.cat([kept, dense.new_zeros(max(0, total - len(kept)), dense.shape[2])])[:total].clone()
