"""Which arguments of a call belong together: what is declared, what is known of ops, and what recorded numbers look like."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_cgins.config.coupled import Coupling, Lengths, Offsets, Pages, Routing, Size, Sorted, Unique
from pytest_cgins.core.trace import OpCall, tensor_indices
from pytest_cgins.verify.semantics import Semantics, integer_of, is_true, op_word

_IMPORTED = re.compile(r"flashinfer\.|(.*\.)?(fib|fid|sol)_\w+\.run$")
"""Functions of flashinfer, and the references of trace sets in its form, as importers name them."""
_EXPERTS = re.compile(r"(gemm1|fc1|w1|w13|expert)\w*weights?|w1|w13")
"""Names of weights whose first dimension counts experts."""
_BYTES_OF_TMA = 16
"""What the begin of a group is a multiple of where groups lie side by side in memory: torch ends the process otherwise."""

Integers = npt.NDArray[np.int64]
Given = Mapping[str, Tensor]
"""Tensors by the name of the argument."""


def couplings_of(semantics: Semantics, call: OpCall, recorded: Sequence[Tensor]) -> tuple[Coupling, ...]:
    """What is declared, and what is known of an op where nothing is declared of the argument."""
    declared = semantics.declared
    said = {coupling.argument for coupling in declared.coupled} | {name for name, _ in declared.roles}
    known = (
        _of_torch if call.op.startswith("torch.") else _of_flashinfer if _IMPORTED.match(call.op) else None
    )
    others = known(call, tensors_of(call, recorded)) if known is not None else ()
    return (*declared.coupled, *(coupling for coupling in others if coupling.argument not in said))


def tensors_of(call: OpCall, recorded: Sequence[Tensor]) -> dict[str, Tensor]:
    """Tensors by the name of the argument."""
    return {
        argument.name: recorded[index]
        for argument in call.arguments
        for index in tensor_indices(argument.value)
        if argument.value.kind == "tensor"
    }


def lengths_of(coupling: Coupling, ends: Integers, size: int) -> Integers:
    """The lengths that rows of offsets into a size, or of lengths, stand for; of other kinds the numbers."""
    if not isinstance(coupling, Offsets):
        return ends
    if not coupling.first:
        ends = np.pad(ends, ((0, 0), (1, 0)))
    if not coupling.last:
        ends = np.pad(ends, ((0, 0), (0, 1)), constant_values=size)
    return np.diff(ends)


# ---- what is known of ops -----------------------------------------------------------------------


def _of_torch(call: OpCall, given: Given) -> Iterator[Coupling]:
    """What torch's own ops need."""
    parts = call.op.split(".")
    match parts[3].strip("_") if parts[1] == "ops" else op_word(call):
        case "embedding_bag" if "offsets" in given:
            whole = is_true(call, "include_last_offset", default=False)
            yield Offsets(argument="offsets", size=(("input", 0),), last=whole)
        case "segment_reduce":
            axis = integer_of(call, "axis", 0) or 0
            yield Lengths(argument="lengths", size=(("data", axis),), sum=True)
            yield Offsets(argument="offsets", size=(("data", axis),))
        case "grouped_mm" | "scaled_grouped_mm" if "offs" in given:
            yield _groups(given)
        case "searchsorted" if "sorter" not in given:
            yield Sorted(argument="sorted_sequence")
        case "bucketize":
            yield Sorted(argument="boundaries")
        case "jagged_to_padded_dense_forward":
            yield Offsets(argument="offsets", size=(("values", 0),), most=(("max_lengths", None),))
        case "padded_dense_to_jagged_forward":
            yield Offsets(argument="offsets", size=(("dense", 0), ("dense", 1)), most=(("dense", 1),))
        case "flash_attention_forward" | "efficient_attention_forward" | "varlen_attn":
            yield from _packed_attention(call, given)


def _groups(given: Given) -> Offsets:
    """Of a grouped product: rows of the first matrix, columns of the second, or what is summed over."""
    first, second = list(given)[:2]
    a, b = given[first], given[second]
    ends = given["offs"].to(torch.int64)
    # Beside each other in memory groups begin at whole steps, unless they were recorded otherwise.
    steps = [_BYTES_OF_TMA // a.element_size(), *ends.diff(prepend=ends.new_zeros(1)).tolist()]
    size = (second, b.ndim - 1) if a.ndim > b.ndim else (first, a.ndim - 1 if b.ndim == 2 else 0)
    multiple = math.gcd(*steps) if b.ndim == 2 else 1
    return Offsets(argument="offs", size=(size,), first=False, multiple=max(1, multiple))


def _packed_attention(call: OpCall, given: Given) -> Iterator[Coupling]:
    """Queries and keys of sequences, packed one behind the other, the keys maybe in pages."""
    query, key = list(given)[:2]
    ints = {argument.name for argument in call.arguments if argument.value.kind == "int"}

    def named(*names: str) -> Size:
        return next((((name, None),) for name in names if name in given or name in ints), ())

    queries, keys = (named(f"cum_seq_{side}", f"cu_seqlens_{side}", f"cu_seq_{side}") for side in "qk")
    used, table = named("seqused_k", "seqlen_k"), named("block_table")
    causal = _is_causal(call)
    size: Size = ((key, given[key].ndim - 3),)
    least = 0 if causal else 1  # what is the mean of nothing?
    if queries:
        own, most = ((query, given[query].ndim - 3),), named("max_q", "max_seqlen_q")
        yield Offsets(argument=queries[0][0], size=own, most=most, within=(used or keys) if causal else ())
    if keys and not table:
        yield Offsets(argument=keys[0][0], size=size, most=named("max_k", "max_seqlen_k"), least=least)
    if used:
        size = ((table[0][0], 1), (key, 1)) if table else size
        yield Lengths(argument=used[0][0], size=size, within=keys, least=least)
    if table:
        yield Pages(argument=table[0][0], size=((key, 0),))


def _is_causal(call: OpCall) -> bool:
    """Whether the last query sees the last key, and none a later one."""
    window = next((argument.value for argument in call.arguments if argument.name == "window_size"), None)
    right = window.items[1].value if window is not None and len(window.items) > 1 else None
    return (
        any(is_true(call, name, default=False) for name in ("is_causal", "causal"))
        or integer_of(call, "custom_mask_type", 0) == 2
        or "causal" in call.op
        or right == 0
    )


def _of_flashinfer(call: OpCall, given: Given) -> Iterator[Coupling]:
    """What the names of arguments mean in flashinfer's functions."""

    def named(*names: str) -> str:
        return next((name for name in given for ending in names if name.endswith(ending)), "")

    cache = next((name for name, tensor in given.items() if "cache" in name and tensor.ndim > 2), "")
    # Where the size of a page is in one tensor of keys and values its layout says, which is not always passed.
    paged = cache if cache.startswith(("k_", "paged_k_", "ckv_", "kpe_")) else ""
    heads_first = any(argument.value.value == "HND" for argument in call.arguments)
    page = (paged, 2 if heads_first else 1)
    of_queries, of_keys = named("qo_indptr", "q_indptr"), named("kv_indptr")
    indices, last = named("kv_indices", "kv_page_indices"), named("last_page_len")
    table, lengths = named("block_tables", "page_table", "block_table"), named("seq_lens", "kv_lens")
    keys = indices or next((name for name in ("k", "key") if name in given), "")
    if of_queries:
        step = (page,) if indices and paged else ()
        reachable = of_keys and (step or not indices) and _is_causal(call)
        within = ((of_keys, None), *step) if reachable else ()
        yield Offsets(argument=of_queries, size=((next(iter(given)), 0),), within=within)
    if of_keys and keys:
        yield Offsets(argument=of_keys, size=((keys, 0),))
    if last and paged:
        yield Lengths(argument=last, size=(page,), least=1)
    if cache:
        yield from (Pages(argument=name, size=((cache, 0),)) for name in (indices, table) if name)
    if lengths and table and paged:
        yield Lengths(argument=lengths, size=((table, 1), page))
    experts = next((name for name in given if _EXPERTS.fullmatch(name) and given[name].ndim > 2), "")
    chosen, weights = named("topk_ids", "token_selected_experts"), named("topk_weights", "token_final_scales")
    if chosen and experts:
        yield Routing(argument=chosen, size=((experts, 0),), weights=weights)


# ---- what a recording looks like ----------------------------------------------------------------


def inferred(semantics: Semantics, call: OpCall, recorded: Sequence[Tensor]) -> list[Coupling]:
    """What the recorded numbers look like, of arguments of which nothing is said: to be proposed, never applied."""
    said = {coupling.argument for coupling in couplings_of(semantics, call, recorded)}
    said |= {name for name, _ in semantics.declared.roles} | set(semantics.entry.kept)
    tensors = tensors_of(call, recorded)
    dims = [
        (name, dim, size)
        for name, tensor in tensors.items()
        for dim, size in enumerate(tensor.shape)
        if tensor.is_floating_point() and size > 1
    ]
    likely = [
        _likely(name, tensor, tensors, dims)
        for name, tensor in tensors.items()
        if name not in said and tensor.ndim and tensor.shape[-1] > 1
    ]
    seen = [coupling for coupling in likely if coupling is not None]
    gates = {coupling.weights for coupling in seen if isinstance(coupling, Routing)}
    alone = [_paged(_bounded(one, call, tensors), seen, tensors) for one in seen if one.argument not in gates]
    return [_beside(one, alone, tensors) for one in alone]


def _likely(
    name: str, tensor: Tensor, tensors: Mapping[str, Tensor], dims: Sequence[tuple[str, int, int]]
) -> Coupling | None:
    if tensor.dtype == torch.bool or tensor.is_complex():
        return None
    rises = bool((tensor.to(torch.float64).diff(dim=-1) >= 0).all())
    if tensor.is_floating_point():
        ordered = rises and tensor.ndim == 1 and len(tensor) > 4 and float(tensor[0]) < float(tensor[-1])
        return Sorted(argument=name) if ordered else None
    flat = tensor.reshape(-1).to(torch.int64)
    if int(flat.min()) < 0:  # of a table negative numbers are no pages
        flat = flat[flat >= 0]
        if tensor.ndim < 2 or not len(flat):
            return None
    sizes = {size: ((other, dim),) for other, dim, size in reversed(dims)}
    rows_of = {size: ((other, dim),) for other, dim, size in reversed(dims) if not dim}
    low, high, last = int(flat.min()), int(flat.max()), int(flat[-1])
    if tensor.ndim == 1 and rises and last in rows_of and (low > 0 or len(flat) > 2):
        return Offsets(argument=name, size=rows_of[last], first=low == 0)
    if tensor.ndim == 1 and int(flat.sum()) in rows_of:
        return Lengths(argument=name, size=rows_of[int(flat.sum())], sum=True)
    if tensor.ndim == 1 and "len" in name.lower():
        within = min((size for size in sizes if size >= high), default=None)
        return None if within is None else Lengths(argument=name, size=sizes[within])
    into = rows_of.get(min((size for size in rows_of if size > high), default=0))
    if into is None:
        return None
    if tensor.ndim == 1 and "expert" in name.lower():
        return Routing(argument=name, size=into)
    rows = tensor.reshape(-1, tensor.shape[-1]).sort(dim=-1).values
    apart = bool((rows.diff(dim=-1) > 0).all())
    gates = [other for other, one in tensors.items() if one.shape == tensor.shape and one.is_floating_point()]
    experts = [other for other, dim, size in dims if not dim and size > high and tensors[other].ndim > 2]
    if tensor.ndim == 2 and apart and gates and experts:
        return Routing(argument=name, size=((experts[0], 0),), weights=gates[0])
    if len(set(flat.tolist())) == len(flat):
        return Unique(argument=name, size=into) if tensor.ndim == 1 else Pages(argument=name, size=into)
    return Sorted(argument=name, size=into) if tensor.ndim == 1 and rises else None


def _bounded(coupling: Coupling, call: OpCall, tensors: Mapping[str, Tensor]) -> Coupling:
    """Offsets, with an integer argument whose name says that it is a maximum, and that no segment exceeds."""
    if not isinstance(coupling, Offsets):
        return coupling
    longest = int(_recorded_lengths(coupling, tensors).max())
    for argument in call.arguments:
        limit = argument.value.value
        if argument.value.kind == "int" and "max" in argument.name.lower() and int(limit or 0) >= longest:
            return replace(coupling, most=((argument.name, None),))
    return coupling


def _paged(coupling: Coupling, seen: Sequence[Coupling], tensors: Mapping[str, Tensor]) -> Coupling:
    """Lengths beside a page table: within the pages of a row, not within some size that is as large."""
    for table in seen:
        if isinstance(table, Pages) and isinstance(coupling, Lengths) and not coupling.sum:
            cache = table.size[0][0]
            if len(tensors[table.argument]) == len(tensors[coupling.argument]) and tensors[cache].ndim > 1:
                return replace(coupling, size=((table.argument, 1), (cache, 1)))
    return coupling


def _beside(coupling: Coupling, seen: Sequence[Coupling], tensors: Mapping[str, Tensor]) -> Coupling:
    """Lengths of queries beside those of keys: within them, if none was recorded that is longer, and some are shorter."""
    if not isinstance(coupling, Offsets | Lengths):
        return coupling
    own = _recorded_lengths(coupling, tensors)
    for other in seen:
        if isinstance(other, Offsets | Lengths):
            lengths = _recorded_lengths(other, tensors)
            if own.shape == lengths.shape and (own <= lengths).all() and (own < lengths).any():
                return replace(coupling, within=((other.argument, None),))
    return coupling


def _recorded_lengths(coupling: Coupling, tensors: Mapping[str, Tensor]) -> Integers:
    numbers = tensors[coupling.argument].to(torch.int64).numpy()
    return lengths_of(coupling, numbers.reshape(-1, numbers.shape[-1]), 0)
