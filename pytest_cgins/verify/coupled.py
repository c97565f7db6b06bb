"""Arguments that belong together, drawn anew: offsets, lengths, page tables, routings, numbers in order.

An integer argument drawn by itself is no legal input, and one that stays as recorded is known by heart: sequences of one
length, pages in order, no expert without tokens. So these are drawn as what they are, as the user declares them or as
torch's own ops need them, and go to their edges: an empty sequence, one of length 1, one that ends on a page, all tokens to
one expert.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_cgins.config.coupled import (
    Coupling,
    Lengths,
    Offsets,
    Routing,
    Sorted,
    written,
)
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.recipe import seed_of, words
from pytest_cgins.packs.values import tensor_indices
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.semantics import Semantics

Integers = npt.NDArray[np.int64]
_SHOWN = 6
"""Numbers of an edge that its name lists."""
_SQUARE = 1 << 22
"""Tokens times experts up to which each token's experts are drawn from all of them."""


class _Lots:
    """Numbers drawn one after the other, the same on every host."""

    def __init__(self, *key: object) -> None:
        self._seed, self._drawn = seed_of(*key), 0

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Any 64 bits."""
        self._drawn += count
        return words(self._seed, count, self._drawn - count)

    def below(self, limit: int, count: int) -> Integers:
        """Integers of [0, limit)."""
        remainders: Integers = (self.words(count) % np.uint64(max(1, limit))).astype(np.int64)
        return remainders

    def order(self, rows: int, count: int) -> Integers:
        """0 … count - 1 in another order in each row."""
        return np.argsort(self.words(rows * count).reshape(rows, count), axis=1, kind="stable")

    def fractions(self, count: int) -> npt.NDArray[np.float64]:
        """Numbers of [0, 1)."""
        upper: npt.NDArray[np.float64] = (self.words(count) >> np.uint64(11)).astype(np.float64)
        return upper * 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """A coupling in one call."""

    coupling: Coupling
    """What is said of the argument."""
    index: int
    """The argument among the tensors."""
    recorded: Tensor
    """What was recorded of it."""
    size: int
    """The size that it is about; 0 for none."""
    page: int
    """The last factor of a size that is a product, else 0."""
    most: int
    """The longest segment of offsets."""
    companions: Mapping[str, tuple[int, Tensor]]
    """Gates and counts of a routing: their index among the tensors, and what was recorded."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the argument."""
        return tuple(self.recorded.shape)

    @property
    def row(self) -> int:
        """Numbers along its last axis."""
        return self.shape[-1] if self.shape else 1

    def fail(self, problem: str) -> ValueError:
        """What a draw raises where the sizes leave nothing legal; it is told as a refusal of torch is."""
        return ValueError(f"{self.coupling.argument} as {self.coupling.kind}: {problem}")


Values = tuple[Mapping[int, npt.NDArray[np.generic]], str]
"""New content by index of the tensor, and what it is like, in words."""


def edge_count(semantics: Semantics, call: OpCall) -> int:
    """How many sets it takes to see the edges of all that belongs together; 0 if nothing does."""
    return max((_EDGES[coupling.kind] for coupling in couplings_of(semantics, call)), default=0)


def draw(
    semantics: Semantics,
    call: OpCall,
    tensors: Sequence[Tensor],
    recorded: Sequence[Tensor],
    key: str,
    *,
    edge: int | None = None,
) -> str:
    """Write new numbers into the arguments that belong together, and say what they are like.

    Arguments that were recorded alike stay alike: offsets of queries and of keys are often the same.

    Args:
        semantics: of the call.
        call: the call.
        tensors: its arguments, written to.
        recorded: the arguments as they were recorded, on the CPU.
        key: of the draw.
        edge: which edge, below `edge_count`; None for usual numbers.

    Raises:
        ConfigError: what is declared is not of this call.
        ValueError: nothing is legal in arguments of these sizes.
    """
    told: list[str] = []
    for coupling in couplings_of(semantics, call):
        for bound in _bind(coupling, call, recorded):
            flat = bound.recorded.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            lots = _Lots(key, coupling.kind, bound.size, hashlib.sha256(flat).hexdigest())
            number = None if edge is None else edge % _EDGES[coupling.kind]
            contents, like = _DRAWS[coupling.kind](bound, lots, number)
            for index, content in contents.items():
                tensor = tensors[index]
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(content)).reshape(tensor.shape))
            told.append(f"{coupling.argument} {like}")
    return ", ".join(dict.fromkeys(told))


# ---- what a coupling is in a call ---------------------------------------------------------------


def _bind(coupling: Coupling, call: OpCall, recorded: Sequence[Tensor]) -> list[_Bound]:
    """The coupling of each tensor of an argument: none, where the call leaves it out."""
    given = {argument.name: argument.value for argument in call.arguments}
    named = coupling.argument in given
    indices = tensor_indices(given[coupling.argument]) if named else []
    roles = {"weights": coupling.weights, "counts": coupling.counts} if isinstance(coupling, Routing) else {}
    companions = {
        role: (index, recorded[index])
        for role, name in roles.items()
        if name in given
        for index in tensor_indices(given[name])[:1]
    }
    bounds = []
    for index in indices:
        tensor = recorded[index]
        floats = isinstance(coupling, Sorted) and not coupling.size
        if not floats and (tensor.is_floating_point() or tensor.dtype == torch.bool):
            raise ConfigError(
                f"semantics says that {coupling.argument} of {call.op} holds {coupling.kind}, and it is {tensor.dtype}",
                remedy="name an argument of integers",
            )
        if not tensor.numel():
            continue
        factors = [_factor(name, dim, coupling, call, recorded) for name, dim in coupling.size]
        longest = coupling.most if isinstance(coupling, Offsets) else ()
        size = int(np.prod(factors)) if factors else 0
        most = [_factor(name, dim, coupling, call, recorded) for name, dim in longest]
        bounds.append(
            _Bound(
                coupling=coupling,
                index=index,
                recorded=tensor,
                size=size,
                page=factors[-1] if len(factors) > 1 else 0,
                most=min([size, *([int(np.prod(most))] if most else [])]),
                companions=companions,
            )
        )
    return bounds


def _factor(name: str, dim: int | None, coupling: Coupling, call: OpCall, recorded: Sequence[Tensor]) -> int:
    """A factor of a size in one call."""
    if name.isdecimal():
        return int(name)
    value = next((argument.value for argument in call.arguments if argument.name == name), None)
    indices = tensor_indices(value) if value is not None else []
    if dim is not None and indices and dim < recorded[indices[0]].ndim:
        return recorded[indices[0]].shape[dim]
    if dim is None and value is not None:
        leaf = value.items[0] if value.items else value
        if leaf.kind == "int":
            return int(leaf.value or 0)
    raise ConfigError(
        f"semantics says that {coupling.argument} of {call.op} depends on {written(((name, dim),))}, which this call does not have",
        remedy='write a dimension that the argument has, e.g. "x[0]", or the name of an integer argument',
    )


# ---- draws, by kind -----------------------------------------------------------------------------


def _offsets(bound: _Bound, lots: _Lots, edge: int | None) -> Values:
    coupling = bound.coupling
    assert isinstance(coupling, Offsets)
    parts = bound.row + 1 - coupling.first - coupling.last
    ends = bound.recorded.reshape(-1, bound.row).numpy().astype(np.int64)
    if coupling.first is False:
        ends = np.pad(ends, ((0, 0), (1, 0)))
    if coupling.last is False:
        ends = np.pad(ends, ((0, 0), (0, 1)), constant_values=bound.size)
    rows = _segments(bound, lots, edge, parts=parts, recorded=np.diff(ends))
    offsets = np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
    kept = offsets[:, 0 if coupling.first else 1 : None if coupling.last else -1]
    return {bound.index: kept}, f"of lengths {_listed(rows[0])}"


def _lengths(bound: _Bound, lots: _Lots, edge: int | None) -> Values:
    coupling, count = bound.coupling, bound.recorded.numel()
    assert isinstance(coupling, Lengths)
    recorded = bound.recorded.reshape(-1, bound.row).numpy().astype(np.int64)
    if coupling.sum:
        rows = _segments(bound, lots, edge, parts=bound.row, recorded=recorded)
        return {bound.index: rows}, f"of lengths {_listed(rows[0])}"
    least = _least(coupling.least, recorded, edge)
    if least > bound.size:
        raise bound.fail(f"none of at least {least} is within {bound.size}")
    if edge is None:
        lengths = least + lots.below(bound.size - least + 1, count)
    else:
        page, size = bound.page, bound.size
        near_pages = (page, page + 1, page - 1, 2 * page) if page > 1 else ()
        ladder = [*dict.fromkeys(min(max(step, least), size) for step in (0, 1, size, *near_pages, size - 1))]
        lengths = np.array([ladder[(place + edge * count) % len(ladder)] for place in range(count)])
    return {bound.index: lengths}, f"of {_listed(lengths)}"


def _segments(bound: _Bound, lots: _Lots, edge: int | None, *, parts: int, recorded: Integers) -> Integers:
    """Lengths that add up to the size, a row for each of the recorded ones: no empty ones but at an edge, or as recorded."""
    coupling, total = bound.coupling, bound.size
    assert isinstance(coupling, Offsets | Lengths)
    most = bound.most if isinstance(coupling, Offsets) else total
    least = min(_least(coupling.least, recorded, edge), total // parts) if parts > 0 else 0
    if parts < 1 or coupling.least * parts > total or most * parts < total:
        raise bound.fail(f"{parts} segments of {coupling.least} to {most} do not add up to {total}")
    rows = []
    for _ in range(len(recorded)):
        if edge == 1:  # as long as may be, in the middle, and none before and behind
            lengths = np.full(parts, least)
            for place in np.roll(np.arange(parts), -(parts // 2)):
                lengths[place] += min(most - least, total - lengths.sum())
        else:
            wanted: Mapping[int | None, Mapping[int, int]] = {
                0: {0: 0, 1: 1},
                2: {parts - 1: 1, parts - 2: 0},
            }
            lengths = _composed(lots, total, parts, least, most, wanted.get(edge, {}))
        rows.append(lengths)
    return np.stack(rows)


def _composed(  # noqa: PLR0917
    lots: _Lots, total: int, parts: int, least: int, most: int, given: Mapping[int, int]
) -> Integers:
    """Lengths that add up to the total; those that are given, as far as the others can take the rest."""
    lengths = np.full(parts, least)
    free = np.ones(parts, dtype=bool)
    for place, length in given.items():
        others = int(free.sum()) - 1
        taken = min(max(length, least), most)
        settled = int(lengths[~free].sum()) + taken
        if 0 <= place < parts and others * least <= total - settled <= others * most:
            lengths[place], free[place] = taken, False
    rest, count = total - int(lengths.sum()), int(free.sum())
    if count:
        cuts = np.sort(lots.below(rest + 1, count - 1))
        shares = np.diff(np.array([0, *cuts, rest]))
        over = int((shares - (most - least)).clip(0).sum())
        shares = shares.clip(None, most - least)
        order = lots.order(1, count)[0]
        room = (most - least - shares)[order]
        shares[order] += (over - (np.cumsum(room) - room)).clip(0, room)
        lengths[free] += shares
    return lengths


def _least(declared: int, recorded: Integers, edge: int | None) -> int:
    """The shortest length of a draw: usual ones are empty only where recorded ones are."""
    usual = edge is None and recorded.size and int(recorded.min()) > 0
    return max(declared, 1 if usual else 0)


def _pages(bound: _Bound, lots: _Lots, edge: int | None) -> Values:
    count = bound.recorded.numel()
    if count <= bound.size:
        return _distinct(bound, lots, edge, rows=1, count=count)
    return _distinct(bound, lots, edge, rows=count // bound.row, count=bound.row)


def _unique(bound: _Bound, lots: _Lots, edge: int | None) -> Values:
    return _distinct(bound, lots, edge, rows=1, count=bound.recorded.numel())


def _distinct(bound: _Bound, lots: _Lots, edge: int | None, *, rows: int, count: int) -> Values:
    if count > bound.size:
        raise bound.fail(f"{counted(count, 'number')} that differ are not below {bound.size}")
    if edge is None:
        return {bound.index: lots.order(rows, bound.size)[:, :count]}, "in any order"
    last = np.arange(bound.size - count, bound.size)
    return {bound.index: np.stack([last[:: -1 if edge else 1]] * rows)}, (
        f"that {'fall' if edge else 'rise'} to {last[0] if edge else last[-1]}"
    )


def _routing(bound: _Bound, lots: _Lots, edge: int | None) -> Values:
    ways = bound.row if len(bound.shape) > 1 else 1
    tokens, experts = bound.recorded.numel() // ways, bound.size
    if ways > experts:
        raise bound.fail(f"{ways} different experts a token are not among {experts}")
    steps = np.arange(ways)
    if edge is None and tokens * experts <= _SQUARE:
        chosen, like = lots.order(tokens, experts)[:, :ways], "by lot"
    elif edge is None:
        chosen, like = (lots.below(experts, tokens)[:, None] + steps) % experts, "by lot"
    elif edge == 0:
        start = int(lots.below(experts, 1)[0])
        chosen, like = np.tile((start + steps) % experts, (tokens, 1)), "all alike"
    elif edge == 1:
        chosen, like = (np.arange(tokens)[:, None] * ways + steps) % experts, "in turns"
    else:
        chosen = np.tile(experts - 1 - steps, (tokens, 1))
        chosen[0] = steps
        like = "that are the last ones, but for one token"
    recorded = bound.recorded.reshape(tokens, ways).numpy().astype(np.int64)
    chosen = np.where(recorded < 0, recorded, chosen)  # tokens that go nowhere
    contents: dict[int, npt.NDArray[np.generic]] = {bound.index: chosen}
    if (counts := bound.companions.get("counts")) is not None:
        contents[counts[0]] = np.bincount(chosen[chosen >= 0], minlength=experts)
    if (weights := bound.companions.get("weights")) is not None and float(weights[1].min()) >= 0:
        shares = np.eye(ways)[lots.below(ways, tokens)] if edge == 1 else 0.05 + lots.fractions(tokens * ways)
        shares = shares.reshape(tokens, ways)
        sums = weights[1].to(torch.float64).reshape(tokens, ways).sum(1, keepdim=True).numpy()
        contents[weights[0]] = shares / shares.sum(1, keepdims=True) * sums
    return contents, like


def _sorted(bound: _Bound, lots: _Lots, edge: int | None) -> Values:
    recorded = bound.recorded.to(torch.float64)
    finite = recorded[recorded.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    low, high = (0.0, bound.size - 1.0) if bound.size else (low, high)
    if not low < high:
        low, high = low - 1, low + 1
    lots_taken = lots.fractions(recorded.numel()).reshape(-1, bound.row)
    if edge is not None:
        lots_taken = np.full_like(lots_taken, 0.5) if edge else np.floor(lots_taken * 4) / 3
    values = low + (high - low) * np.sort(lots_taken, axis=1).clip(0, 1)
    if not bound.recorded.is_floating_point():
        values = np.round(values)
    return {
        bound.index: values
    }, "that are all equal" if edge else "in order" if edge is None else "in order, with equal ones"


def _listed(numbers: Sequence[int] | Integers) -> str:
    shown = ", ".join(str(int(number)) for number in list(numbers)[:_SHOWN])
    return f"{shown}, …" if len(numbers) > _SHOWN else shown


_EDGES: Mapping[str, int] = {"offsets": 3, "lengths": 3, "pages": 2, "routing": 3, "sorted": 2, "unique": 2}
"""Kinds of edges that each kind of coupling has."""
_DRAWS: Mapping[str, Callable[[_Bound, _Lots, int | None], Values]] = {
    "offsets": _offsets, "lengths": _lengths, "pages": _pages, "routing": _routing, "sorted": _sorted, "unique": _unique,
}  # fmt: skip
