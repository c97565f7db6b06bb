"""Kernels that are right on all arguments that belong together, however they compute."""

from itertools import pairwise

import torch
from torch import Tensor


def varlen_mean_loop(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    out = torch.zeros(len(cu_seqlens) - 1, x.shape[1], dtype=x.dtype)
    for row in range(len(out)):
        start, end = int(cu_seqlens[row]), int(cu_seqlens[row + 1])
        for token in range(start, end):
            out[row] += x[token] / (end - start)
    return out


def varlen_mean_of_running_sums(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    total = torch.cat([torch.zeros(1, x.shape[1], dtype=torch.float64), x.double().cumsum(0)])
    sums = total[cu_seqlens[1:]] - total[cu_seqlens[:-1]]
    return (sums / cu_seqlens.diff().clamp_min(1)[:, None]).to(x.dtype)


def varlen_mean_as_product(x: Tensor, cu_seqlens: Tensor) -> Tensor:
    tokens = torch.arange(len(x))
    belongs = (tokens >= cu_seqlens[:-1, None]) & (tokens < cu_seqlens[1:, None])
    return (belongs.double() @ x.double() / belongs.sum(1).clamp_min(1)[:, None]).to(x.dtype)


def varlen_attention_padded(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """All sequences are padded to the longest, and what is beyond them is masked."""
    lengths = cu_seqlens.diff()
    at = torch.arange(max_seqlen)
    inside = at < lengths[:, None]
    places = (cu_seqlens[:-1, None] + at).clamp_max(len(q) - 1)
    padded_q, padded_k, padded_v = (tensor.double()[places] for tensor in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", padded_q, padded_k) / q.shape[-1] ** 0.5
    seen = inside[:, None, None, :] & (at[:, None] >= at)
    weights = scores.masked_fill(~seen, -1e300).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, padded_v)[inside].to(q.dtype)


def varlen_attention_block_mask(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    """All tokens at once, those of other sequences masked."""
    sequence = torch.repeat_interleave(torch.arange(len(cu_seqlens) - 1), cu_seqlens.diff())
    at = torch.arange(len(q))
    seen = (sequence[:, None] == sequence) & (at[:, None] >= at)
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v.double()).to(q.dtype).contiguous()


def paged_attention_online(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Page by page, with a running maximum."""
    out, page = torch.zeros_like(q), keys.shape[1]
    for row, length in enumerate(lengths.tolist()):
        largest, total = -torch.inf, 0.0
        mixed = torch.zeros(q.shape[1], dtype=torch.float64)
        for number in range(-(-length // page)):
            count = min(page, length - number * page)
            block = int(table[row, number])
            scores = keys[block, :count].double() @ q[row].double() / q.shape[1] ** 0.5
            now = max(largest, float(scores.max()))
            shrink = torch.exp(torch.tensor(largest - now, dtype=torch.float64))
            weights = (scores - now).exp()
            total = total * float(shrink) + float(weights.sum())
            mixed = mixed * shrink + weights @ values[block, :count].double()
            largest = now
        if length:
            out[row] = (mixed / total).to(q.dtype)
    return out


def paged_attention_masked(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Whole pages, with what is beyond the length masked."""
    own_keys, own_values = (cache[table.long()].flatten(1, 2).double() for cache in (keys, values))
    scores = torch.einsum("bkd,bd->bk", own_keys, q.double()) / q.shape[1] ** 0.5
    seen = torch.arange(own_keys.shape[1]) < lengths[:, None]
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).where((lengths > 0)[:, None], 0.0)
    own_values = own_values.where(seen[..., None], 0.0)  # 0 times what is left there may be NaN
    return torch.einsum("bk,bkd->bd", weights, own_values).to(q.dtype)


def mixture_by_expert(x: Tensor, weight: Tensor, experts: Tensor, gates: Tensor) -> Tensor:
    """Tokens sorted by expert, a product an expert, added up."""
    out = torch.zeros(len(x), weight.shape[1], dtype=torch.float64)
    for expert in range(len(weight)):
        tokens, ways = (experts == expert).nonzero(as_tuple=True)
        rows = x[tokens].double() @ weight[expert].double().T
        out.index_add_(0, tokens, rows * gates[tokens, ways].double()[:, None])
    return out.to(x.dtype)


def mixture_dense(x: Tensor, weight: Tensor, experts: Tensor, gates: Tensor) -> Tensor:
    """Every expert on every token, with a gate of 0 where it is not chosen."""
    all_gates = torch.zeros(len(x), len(weight), dtype=torch.float64).scatter_add(1, experts, gates.double())
    every = torch.einsum("eoi,ti->teo", weight.double(), x.double())
    return torch.einsum("te,teo->to", all_gates, every).to(x.dtype)


def expert_means_loop(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    out = bias.clone()
    for expert in range(len(bias)):
        rows = x[experts == expert]
        if len(rows):
            out[expert] += (rows.double().sum(0) / len(rows)).to(x.dtype)
    return out


def expert_means_sorts(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    order = experts.argsort(stable=True)
    bounds = torch.searchsorted(experts[order], torch.arange(len(bias) + 1))
    total = torch.cat([torch.zeros(1, x.shape[1], dtype=torch.float64), x[order].double().cumsum(0)])
    sums = total[bounds[1:]] - total[bounds[:-1]]
    return (sums / bounds.diff().clamp_min(1)[:, None]).to(x.dtype) + bias


def expert_sums_as_product(x: Tensor, experts: Tensor, bias: Tensor) -> Tensor:
    hot = (experts == torch.arange(len(bias))[:, None]).double()
    return (hot @ x.double() + bias).to(x.dtype)


def last_token_gather(x: Tensor, lengths: Tensor) -> Tensor:
    at = (lengths - 1).clamp_min(0)[:, None, None].expand(-1, 1, x.shape[2])
    return x.gather(1, at)[:, 0].where((lengths > 0)[:, None], 0.0)


def write_slots_loop(cache: Tensor, rows: Tensor, slots: Tensor) -> Tensor:
    out = cache.clone()
    for row, slot in enumerate(slots.tolist()):
        out[slot] = rows[row]
    return out


def levels_count(x: Tensor, edges: Tensor) -> Tensor:
    return (edges < x[..., None]).sum(-1).to(x.dtype)


def segment_reduce_index_add(
    data: Tensor, reduce: str, *, lengths: Tensor, axis: int = 0, unsafe: bool = False
) -> Tensor:
    segment = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    out = torch.zeros(len(lengths), data.shape[1], dtype=torch.float64)
    return out.index_add_(0, segment, data.double()).to(data.dtype)


def embedding_bag_loop(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor,
    *,
    mode: str = "mean",
    include_last_offset: bool = False,
    **others: object,
) -> Tensor:
    """Options that it does not have it refuses."""
    if mode != "mean" or any(
        not (other is None or other is False) for name, other in others.items() if name != "norm_type"
    ):
        raise NotImplementedError(mode)
    ends = offsets.tolist() if include_last_offset else [*offsets.tolist(), len(input)]
    out = torch.zeros(len(ends) - 1, weight.shape[1], dtype=weight.dtype)
    for bag, (start, end) in enumerate(pairwise(ends)):
        for index in input[start:end].tolist():
            out[bag] += weight[index] / (end - start)
    return out


def grouped_loop(self: Tensor, mat2: Tensor, offs: Tensor, *_rest: object, **_more: object) -> Tensor:
    out = torch.zeros(len(self), mat2.shape[2], dtype=self.dtype)
    start = 0
    for group, end in enumerate(offs.tolist()):
        out[start:end] = (self[start:end].double() @ mat2[group].double()).to(self.dtype)
        start = end
    return out
