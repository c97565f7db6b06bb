"""Couplings of integers of which nobody says anything, as far as torch's own answers prove what the integers are.

What a recording looks like may be chance: numbers that end with a size need not be offsets. So a user's op is asked. Offsets
and lengths divide arguments into segments if the op's answer to all of them is what it answers to each alone, on a division
that was drawn; indices point into an argument if they may be numbered otherwise together with its rows; lengths tell how much of a row
counts if the op reads all of that, and nothing behind it. What is legal stays within what was recorded: no segment is empty
unless one was, nor longer than an integer that may be their limit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.config import Declared
from pytest_cgins.config.coupled import Coupling, Lengths, Offsets, Pages, Unique
from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.layout import lay_out, metas_of
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import relocate
from pytest_cgins.verify import coupled, low_bits
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.input_sets import InputSetBuilder
from pytest_cgins.verify.op_calls import is_causal
from pytest_cgins.verify.reference import widened
from pytest_cgins.verify.semantics import Semantics, semantics_for
from pytest_cgins.verify.tolerance import all_finite

_MOST_BYTES = 16 << 20
"""Of arguments, with which the op is run a few times."""
_ALIGNED = 16
"""What all lengths are multiples of they may have to be, from here on."""
_NEAR = 1e-6
"""By how much sums in another order may differ in fp64."""
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class _Op:
    """A recorded call, run in fp64 on the CPU."""

    builder: InputSetBuilder
    recorded: Sequence[Tensor]

    def run(self, changed: dict[int, Tensor]) -> list[Tensor]:
        """Answers with some arguments in the place of recorded ones.

        Raises:
            Exception: whatever the op raises.
        """
        tensors = [changed.get(index, tensor) for index, tensor in enumerate(self.recorded)]
        call, mutated = relocate(self.builder.call, "cpu"), self.builder.mutated or ()
        return [*widened(call, lay_out(tensors), self.builder.trace.context, "cpu", mutated)]

    def takes(self, changed: dict[int, Tensor], answers: Sequence[Tensor]) -> bool:
        """Whether these are its answers, bit for bit."""
        with suppress(Exception):  # an op of a user may refuse by any exception
            return all_same(self.run(changed), answers)
        return False


def proven(builder: InputSetBuilder, recorded: Sequence[Tensor]) -> tuple[Coupling, ...]:
    """Couplings of a user's op beside those that are declared or known, proven by its answers."""
    call, semantics = builder.call, builder.semantics
    if call.op.startswith("torch.") or is_derived(call.op) or builder.random or builder.trace.gold is None:
        return ()
    free = free_integers(call, semantics, recorded)
    if not free or sum(tensor.nbytes for tensor in recorded) > _MOST_BYTES:
        return ()
    op, found = _Op(builder, recorded), list[Coupling]()
    with suppress(Exception):  # as in takes
        found += _segments(op, free)
    for index in free:
        for kind in (_pointing, _counting):
            if semantics.names[index] not in {one.argument for one in found}:
                with suppress(Exception):  # as in takes
                    found += kind(op, index)
    return tuple(one for one in found if _has_edges(op, one))


def _has_edges(op: _Op, coupling: Coupling) -> bool:
    """Whether the op answers with numbers to all that is drawn of a coupling: a query that is too many has no keys."""
    call, said = op.builder.call, op.builder.declared | Declared(coupled=(coupling,))
    known = semantics_for(call, said)
    with suppress(Exception):  # as in takes
        for number in (None, *range(coupled.edge_count(known, call, op.recorded))):
            tensors = [tensor.clone() for tensor in op.recorded]
            coupled.draw(known, call, tensors, op.recorded, "proof", number)
            if not all(map(all_finite, op.run(dict(enumerate(tensors))))):
                return False
        return True
    return False


def free_integers(call: OpCall, semantics: Semantics, recorded: Sequence[Tensor]) -> list[int]:
    """Arguments of integers that are neither declared nor known, and no codes."""
    said = {"", *(one.argument for one in couplings_of(semantics, call, recorded))}
    said |= dict(semantics.declared.roles).keys()
    return [
        index
        for index, meta in enumerate(metas_of(recorded))
        if semantics.names.get(index, "") not in said
        and semantics.kept(index, meta) == "index"
        and low_bits.code_range(semantics, index, recorded[index]) is None
        and meta.shape
        and meta.numel
    ]


# ---- segments -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Division:
    """An argument that may divide the rows of others into segments."""

    index: int
    lengths: tuple[int, ...]
    rows: tuple[int, ...]
    """Arguments whose rows these are."""
    is_offsets: bool

    @property
    def step(self) -> int:
        """What lengths have to be multiples of."""
        step = math.gcd(*self.lengths)
        return step if step >= _ALIGNED else 1

    def numbers(self, lengths: Sequence[int], like: Tensor) -> Tensor:
        """What the argument holds for some lengths."""
        numbers = [0, *torch.tensor(lengths).cumsum(0).tolist()] if self.is_offsets else lengths
        return torch.tensor(numbers).to(like.dtype)


def _divisions(recorded: Sequence[Tensor], free: Sequence[int]) -> list[_Division]:
    divisions = []
    for index in free:
        numbers = recorded[index].to(torch.int64)
        if numbers.ndim != 1 or numbers.numel() < 2:
            continue
        rises = int(numbers[0]) == 0 and bool((numbers.diff() >= 0).all())
        is_offsets = rises and numbers.numel() > 2
        lengths = numbers.diff() if is_offsets else numbers
        total = int(lengths.sum())
        rows = [n for n, one in enumerate(recorded) if one.ndim and len(one) == total and n not in free]
        rows += [n for n in free if len(recorded[n]) == total and n != index]
        if rows and int(lengths.min()) >= 0 and total > len(lengths):
            divisions.append(_Division(index, tuple(lengths.tolist()), tuple(sorted(rows)), is_offsets))
    return divisions


def _segments(op: _Op, free: Sequence[int]) -> list[Coupling]:
    """Offsets and lengths, of which all divide rows into as many segments."""
    divisions = _divisions(op.recorded, free)
    if not divisions or len({len(one.lengths) for one in divisions}) > 1:
        return []
    tried, dtypes = [divisions], {op.recorded[one.index].dtype for one in divisions}
    alike = len({(one.lengths, one.rows, one.is_offsets) for one in divisions}) == len(dtypes) == 1
    if len(divisions) > 1:
        causal = is_causal(op.builder.call, lay_out(op.recorded), op.builder.trace.context)
        if not alike and (causal or len({one.rows for one in divisions}) < len(divisions)):
            return []  # one follows from another, or reaches as far
        if alike and not causal and len(divisions) == 2 and len(divisions[0].rows) > 1:
            # The first argument's rows, such as queries, may be divided by themselves.
            first, second = divisions
            tried.insert(0, [replace(first, rows=first.rows[:1]), replace(second, rows=second.rows[1:])])
    for some in tried:
        divided = False
        with suppress(Exception):  # as in takes
            divided = _are_divided(op, some, apart=some is not divisions or not alike)
        if divided:
            beside = {one.index: one.lengths for one in divisions}
            beside |= {
                n: tuple(op.recorded[n].tolist())
                for n in free
                if n not in beside and op.recorded[n].ndim == 1
            }
            return [_coupling(op, one, beside) for one in some]
    return []


def _are_divided(op: _Op, divisions: Sequence[_Division], *, apart: bool) -> bool:
    """Whether the answer to segments that are drawn is what the op answers to each of them alone."""
    generator = torch.Generator().manual_seed(len(op.recorded))
    drawn: list[list[int]] = []
    for one in divisions:
        lengths = _drawn(op, one, generator) if apart or not drawn else drawn[0]
        if lengths is None:
            return False
        drawn.append(lengths)
    pairs, count, parts = [*zip(divisions, drawn, strict=True)], len(drawn[0]), list[list[Tensor]]()
    whole = op.run({one.index: one.numbers(lengths, op.recorded[one.index]) for one, lengths in pairs})
    own = {n: tensor for n, tensor in enumerate(op.recorded) if tensor.ndim and len(tensor) == count}
    for number in range(count):
        alone = {index: tensor[number : number + 1] for index, tensor in own.items()}
        for one, lengths in pairs:
            begin, length = sum(lengths[:number]), lengths[number]
            alone |= {index: op.recorded[index][begin : begin + length].clone() for index in one.rows}
            alone[one.index] = one.numbers([length], op.recorded[one.index])
        parts.append(op.run(alone))
    joined = [torch.cat(some) for some in zip(*parts, strict=True)]
    return not op.takes({}, whole) and all(map(_near, whole, joined))


def _drawn(op: _Op, division: _Division, generator: torch.Generator) -> list[int] | None:
    """Other lengths of the same sum; None if none were found."""
    step, (_, limit) = division.step, _limit(op, division)
    units, count = sum(division.lengths) // step, len(division.lengths)
    for _ in range(_ATTEMPTS):
        if min(division.lengths):
            cuts = torch.randperm(max(0, units - 1), generator=generator)[: count - 1].sort().values + 1
        else:
            cuts = torch.randint(units + 1, (count - 1,), generator=generator).sort().values
        lengths = [step * (end - begin) for begin, end in pairwise([0, *cuts.tolist(), units])]
        lengths[-1] += sum(division.lengths) - step * units
        if len(lengths) == count and tuple(lengths) != division.lengths and max(lengths) <= limit:
            return lengths
    return None


def _limit(op: _Op, division: _Division) -> tuple[str, float]:
    """The least integer of the call that no segment exceeds, and its name; "" for none."""
    ints = [one for one in op.builder.call.arguments if one.value.kind == "int"]
    limits = [(one.name, int(one.value.value or 0)) for one in ints]
    longest = max(division.lengths)
    return min((one for one in limits if one[1] >= longest), key=lambda one: one[1], default=("", math.inf))


def _coupling(op: _Op, division: _Division, beside: Mapping[int, tuple[int, ...]]) -> Coupling:
    names, (limit, _), own = op.builder.semantics.names, _limit(op, division), division.lengths
    # Of queries that may be last ones there are as many keys.
    longer = [
        ((names[n], None),)
        for n, other in beside.items()
        if len(other) == len(own) and other != own and all(map(operator.le, own, other))
    ]
    said: dict[str, Any] = {
        "argument": names[division.index],
        "size": ((names[division.rows[0]], 0),),
        "least": min(1, *own),
        "within": next(iter(longer), ()),
    }
    if not division.is_offsets:
        return Lengths(sum=True, **said)
    return Offsets(most=((limit, None),) if limit else (), multiple=division.step, **said)


# ---- positions ----------------------------------------------------------------------------------


def _pointing(op: _Op, index: int) -> list[Coupling]:
    """Indices of rows of other arguments: with both numbered otherwise the answer is the same."""
    before = op.run({})
    numbers, mutated = op.recorded[index].to(torch.int64), op.builder.mutated or ()
    used = numbers[numbers >= 0]
    writes = bool(mutated) and _once(used)
    if not used.numel() or (numbers.ndim == 1 and bool((numbers.diff() >= 0).all()) and not writes):
        return []  # numbers in order may have to be
    for rows in _tables(op.recorded, index, int(used.max())):
        count = len(op.recorded[rows[0]])
        order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
        moved = torch.where(numbers < 0, numbers, order.argsort()[numbers.clamp(min=0)])
        changed = {row: op.recorded[row][order] for row in rows}
        changed_index = {index: moved.to(op.recorded[index].dtype)}
        returned = len(before) - len(mutated)
        expected = [
            one[order] if number >= returned and mutated[number - returned] in rows else one
            for number, one in enumerate(before)
        ]
        if op.takes(changed | changed_index, expected) and not op.takes(changed_index, before):
            names = op.builder.semantics.names
            name, size = names[index], ((names[rows[0]], 0),)
            return [Unique(argument=name, size=size) if writes else Pages(argument=name, size=size)]
    return []


def _tables(recorded: Sequence[Tensor], index: int, greatest: int) -> Iterator[list[int]]:
    """Arguments of as many rows, more than the greatest index: all of one size, then each alone."""
    large = [n for n, one in enumerate(recorded) if n != index and one.ndim and len(one) > greatest]
    for size in sorted({len(recorded[n]) for n in large}):
        alike = [n for n in large if len(recorded[n]) == size]
        if all(recorded[n].is_floating_point() or recorded[n].element_size() == 1 for n in alike):
            yield alike
        yield from ([n] for n in alike if len(alike) > 1 and recorded[n].is_floating_point())


def _counting(op: _Op, index: int) -> list[Coupling]:
    """Lengths of which each tells how much of a row of others counts: what lies behind does not, and the last does."""
    numbers, spots = op.recorded[index], dict[tuple[int, int], list[int]]()
    for n, one in enumerate(op.recorded):
        if one.is_floating_point() and one.ndim > 1 == numbers.ndim and len(one) == len(numbers):
            for dim, size in enumerate(one.shape):
                if dim and size >= int(numbers.max()):
                    spots.setdefault((size, dim), []).append(n)
    for (size, dim), rows in sorted(spots.items()):
        lengths = 1 + (torch.arange(len(numbers)) * 5 + 2) % size
        drawn = {index: lengths.to(numbers.dtype)}
        before = op.run(drawn)
        behind, last = ({n: _other(op.recorded[n], dim, lengths, at) for n in rows} for at in (0, -1))
        reads = not op.takes(drawn | last, before) and not op.takes({}, before)
        if reads and op.takes(drawn | behind, before):
            least = min(1, int(numbers.min()))
            names = op.builder.semantics.names
            return [Lengths(argument=names[index], size=((names[rows[0]], dim),), least=least)]
    return []


def _other(tensor: Tensor, dim: int, lengths: Tensor, at: int) -> Tensor:
    """A tensor with other numbers behind the lengths of its rows, or at their last place."""
    places = torch.arange(tensor.shape[dim])
    chosen = places >= lengths[:, None] if at == 0 else places == lengths[:, None] - 1
    shape = [size if n in (0, dim) else 1 for n, size in enumerate(tensor.shape)]
    wide = tensor.to(torch.float32)
    return torch.where(chosen.reshape(shape), wide.roll(1, dim) + 3, wide).to(tensor.dtype)


def are_offsets(numbers: Tensor) -> bool:
    """Whether they rise from 0, and not by 1 each."""
    steps = numbers.to(torch.int64).diff()
    rise = numbers.ndim == 1 and numbers.numel() > 1 and int(numbers[0]) == 0 and bool((steps >= 0).all())
    return rise and bool((steps != 1).any())


def _once(numbers: Tensor) -> bool:
    """Whether none comes twice."""
    return len(set(numbers.reshape(-1).tolist())) == numbers.numel()


def _near(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or not one.is_floating_point():
        return one.shape == other.shape and torch.equal(one, other)
    return bool(torch.isfinite(one).all()) and torch.allclose(one, other, rtol=_NEAR, atol=_NEAR)
