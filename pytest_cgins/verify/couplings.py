"""Which arguments of a call belong together: what is declared, what is known of ops, and what recorded numbers look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.config.coupled import Coupling, Lengths, Offsets, Pages, Routing, Sorted, Unique
from pytest_cgins.core.trace import OpCall, Value
from pytest_cgins.packs.values import tensor_indices
from pytest_cgins.verify.semantics import Semantics, integer_of, is_true, op_word


def couplings_of(semantics: Semantics, call: OpCall) -> tuple[Coupling, ...]:
    """What is declared, and what is known of torch's ops where nothing is declared of the argument."""
    declared = semantics.declared
    said = {coupling.argument for coupling in declared.coupled} | {name for name, _ in declared.roles}
    known = _known(call) if call.op.startswith("torch.") else ()
    return (*declared.coupled, *(coupling for coupling in known if coupling.argument not in said))


def _known(call: OpCall) -> tuple[Coupling, ...]:
    """What torch's own ops need."""
    given = {argument.name: argument.value.kind for argument in call.arguments}
    match op_word(call):
        case "embedding_bag" if given.get("offsets") == "tensor":
            whole = is_true(call, "include_last_offset", default=False)
            return (Offsets(argument="offsets", size=(("input", 0),), last=whole),)
        case "segment_reduce":
            size = (("data", integer_of(call, "axis", 0) or 0),)
            lengths = Lengths(argument="lengths", size=size, sum=True)
            return (lengths, Offsets(argument="offsets", size=size))
        case "_grouped_mm" | "grouped_mm" if given.get("offs") == "tensor":
            first = next(iter(given))
            return (Offsets(argument="offs", size=((first, 0),), first=False),)
        case "searchsorted" if given.get("sorter") != "tensor":
            return (Sorted(argument="sorted_sequence"),)
        case "bucketize":
            return (Sorted(argument="boundaries"),)
        case "_jagged_to_padded_dense_forward":
            return (Offsets(argument="offsets", size=(("values", 0),), most=(("max_lengths", None),)),)
    return ()


# ---- what a recording looks like ----------------------------------------------------------------


def inferred(semantics: Semantics, call: OpCall, recorded: Sequence[Tensor]) -> list[Coupling]:
    """What the recorded numbers look like, of arguments of which nothing is said: to be proposed, never applied."""
    said = {coupling.argument for coupling in couplings_of(semantics, call)}
    said |= {name for name, _ in semantics.declared.roles} | set(semantics.entry.kept)
    tensors = {argument.name: recorded[i] for argument in call.arguments for i in _own(argument.value)}
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
    return [_paged(_bounded(one, call, tensors), seen, tensors) for one in seen if one.argument not in gates]


def _own(value: Value) -> list[int]:
    return tensor_indices(value) if value.kind == "tensor" else []


def _likely(
    name: str, tensor: Tensor, tensors: Mapping[str, Tensor], dims: Sequence[tuple[str, int, int]]
) -> Coupling | None:
    rises = bool((tensor.to(torch.float64).diff(dim=-1) >= 0).all())
    if tensor.is_floating_point():
        ordered = rises and tensor.ndim == 1 and len(tensor) > 4 and float(tensor[0]) < float(tensor[-1])
        return Sorted(argument=name) if ordered else None
    if tensor.dtype == torch.bool or tensor.is_complex() or int(tensor.min()) < 0:
        return None
    flat = tensor.reshape(-1).to(torch.int64)
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
    experts = next(
        (((other, 0),) for other, dim, size in dims if dim == 0 and size > high and tensors[other].ndim > 2),
        None,
    )
    if tensor.ndim == 2 and apart and gates and experts:
        return Routing(argument=name, size=experts, weights=gates[0])
    if len(set(flat.tolist())) == len(flat):
        return Unique(argument=name, size=into) if tensor.ndim == 1 else Pages(argument=name, size=into)
    return Sorted(argument=name, size=into) if tensor.ndim == 1 and rises else None


def _bounded(coupling: Coupling, call: OpCall, tensors: Mapping[str, Tensor]) -> Coupling:
    """Offsets, with an integer argument whose name says that it is a maximum, and that no segment exceeds."""
    if not isinstance(coupling, Offsets):
        return coupling
    longest = int(tensors[coupling.argument].diff().max())
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
