"""Probe `sizes`: the same op on other sizes, one more, one less or a prime, as tails of tiles and constants show, and on no rows.

Dimensions and integer arguments of one size move together, and torch decides which moves are legal by running them.
A kernel may refuse a size with an error; what it answers must be right. An empty batch is a size as well, and no
refusal is what a launch of no blocks, or a division by the number of rows, ends with.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from pytest_cgins.model import OpCall, TensorMeta, Value
from pytest_cgins.trace.call import relocate
from pytest_cgins.trace.dtypes import ITEMSIZE
from pytest_cgins.trace.layout import lay_out
from pytest_cgins.trace.modules import is_module_call
from pytest_cgins.trace.values import tensor_indices
from pytest_cgins.verify import inputs
from pytest_cgins.verify.maker import InputSet, Maker
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.resize import resized
from pytest_cgins.verify.semantics import Semantics

NAME = "sizes"
LIMIT_BYTES = 256 << 10
"""Arguments that are larger are halved until they are not."""
REPEATED_BYTES = 64 << 10
"""Up to here a third set costs nothing that would be noticed."""
LEAST = 4
"""Smaller sizes are those of windows and groups, mostly: they move only where there are no others."""
_ATTEMPTS = 6  # for one set: what torch refuses costs no more than the check of a form

Moves = Mapping[int, int]
"""New size by old one."""


def sets(
    maker: Maker, semantics: Semantics, recorded: Sequence[torch.Tensor], key: str
) -> tuple[list[InputSet], str]:
    """At most three sets of other sizes and an empty one, or none and why.

    Args:
        maker: of the trace.
        semantics: of its call.
        recorded: argument tensors, on the CPU.
        key: seed of the session and name of the trace.
    """
    places = _Places(maker.call, semantics, recorded)
    if places.are_tied:
        return [], "the op changes an argument that shares its memory with another"
    if not places.inner and not places.others and not places.batches(semantics):
        own = ", and those of a module's state belong to it" if is_module_call(maker.call) else ""
        return [], f"no argument has a size that may change{own}"
    trial = _Trial(maker, semantics, recorded, key, places)
    small = trial.shrunk() if places.inner or places.others else {}
    found: list[InputSet] = []
    for plan in _plans(places, small, trial.nbytes(small) <= REPEATED_BYTES):
        made = trial.first_legal(plan)
        if made is not None and all(made.expected.name != other.expected.name for other in found):
            found.append(made)
    empty = trial.empty(small)
    if empty is not None:
        found.append(empty)
    return found, "" if found else f"torch refuses every other size that was tried ({trial.refusal})"


def _plans(places: _Places, small: Moves, again: bool) -> Iterator[list[Moves]]:
    """For each set the moves to try, the most telling first; `small` halves what is too large."""
    inner, others = places.inner, places.others

    def to(new: Callable[[int], int], *sizes: int) -> Moves:
        return {**small, **{n: new(small.get(n, n)) for n in sizes}}

    yield [to(_one_more, n) for n in (*inner, *others)]
    if others:
        yield [to(prime_above, *others), *(to(prime_above, n) for n in others)]
    elif inner:
        yield [to(prime_below, *inner)]
    if again and inner:
        yield [to(_one_less, *inner)]


def prime_above(size: int) -> int:
    """The least prime above a size."""
    return next(n for n in itertools.count(size + 1) if _is_prime(n))


def prime_below(size: int) -> int:
    """The greatest prime below a size; one more than it where there is none but small ones."""
    if size <= LEAST:
        return size + 1
    return next(n for n in range(size - 1, 1, -1) if _is_prime(n))


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _one_more(size: int) -> int:
    return size + 1


def _one_less(size: int) -> int:
    return size - 1 if size > LEAST else size + 1


class _Places:
    """Which sizes of a call may move: those within rows of the data first, then all others."""

    def __init__(self, call: OpCall, semantics: Semantics, recorded: Sequence[torch.Tensor]) -> None:
        layout = lay_out(recorded, copy=False)
        self.metas = layout.metas
        self._fixed = semantics.fixed
        self._names = semantics.names
        storages = [meta.storage for meta in self.metas]
        # An argument that is changed in place must lie where the other sees it.
        self._shared = any(storages.count(storage) > 1 for storage in storages)
        self.in_place = call.op.endswith("_")
        tables = {index for index, meta in enumerate(self.metas) if semantics.kept(index, meta) == "table"}
        self._state = _state(call)
        held = _offsets(semantics, recorded, self.metas) | _sizes_of_state(call, self._state, self.metas)
        sizes: dict[int, None] = {}
        for index, meta in enumerate(self.metas):
            for dim, size in enumerate(meta.shape):
                # What a table holds along a row depends on itself: often the second half repeats the first.
                of_table = index in tables and dim == len(meta.shape) - 1
                if size > 1 and not self.is_fixed(index, dim) and not of_table and size not in held:
                    sizes.setdefault(size)
        self._tables = tables
        usual = [size for size in sizes if size >= LEAST] or list(sizes)
        within = self._within_rows(call, semantics, recorded)
        self.inner = [size for size in usual if size in within][-1:]
        self.others = sorted((size for size in usual if size not in self.inner), reverse=True)

    @property
    def are_tied(self) -> bool:
        """Whether sizes cannot move since memory is shared and changed."""
        return self._shared and self.in_place

    def is_fixed(self, index: int, dim: int) -> bool:
        """Whether one dimension of a tensor must keep its size."""
        name = self._names.get(index, "")
        return index in self._state or (name, None) in self._fixed or (name, dim) in self._fixed

    def shape(self, index: int, moves: Moves) -> tuple[int, ...]:
        """Sizes of a tensor after moves."""
        last = len(self.metas[index].shape) - 1
        return tuple(
            size
            if self.is_fixed(index, dim) or (index in self._tables and dim == last)
            else moves.get(size, size)
            for dim, size in enumerate(self.metas[index].shape)
        )

    def call(self, call: OpCall, moves: Moves) -> OpCall:
        """The call with its integer arguments moved as well."""
        return replace(
            call,
            arguments=tuple(
                argument
                if (argument.name, None) in self._fixed or argument.passed == "state"
                else replace(argument, value=_moved(argument.value, moves))
                for argument in call.arguments
            ),
        )

    def _within_rows(self, call: OpCall, semantics: Semantics, recorded: Sequence[torch.Tensor]) -> list[int]:
        for index, tensor in inputs.data(semantics, recorded):
            lanes = semantics.lanes(call, index, tuple(tensor.shape))
            return [size for dim, size in enumerate(tensor.shape) if dim not in lanes]
        return []

    def batches(self, semantics: Semantics) -> list[list[int]]:
        """Tensors whose first dimension may be a batch: all of one size, or the first alone.

        By place and not by size: a batch of 64 has nothing to do with 64 channels, nor one of 1 with what is expanded.
        """
        batched = [
            index
            for index, meta in enumerate(self.metas)
            if meta.shape
            and meta.shape[0]
            and not self.is_fixed(index, 0)
            and index not in self._tables
            and semantics.role(index, meta) in ("data", "keep")
        ]
        first = next((i for i in batched if semantics.role(i, self.metas[i]) == "data"), (*batched, None)[0])
        if first is None:
            return []
        alike = [index for index in batched if self.metas[index].shape[0] == self.metas[first].shape[0]]
        return [alike] if alike == [first] else [alike, [first]]


class _Trial:
    """Tries moves until torch takes one."""

    def __init__(
        self,
        maker: Maker,
        semantics: Semantics,
        recorded: Sequence[torch.Tensor],
        key: str,
        places: _Places,
    ) -> None:
        self._maker, self._semantics, self._recorded = maker, semantics, recorded
        self._key, self._places = key, places
        self.refusal = "none"

    def nbytes(self, moves: Moves) -> int:
        """Of all arguments after moves."""
        return sum(
            math.prod(self._places.shape(index, moves)) * ITEMSIZE[meta.dtype]
            for index, meta in enumerate(self._places.metas)
        )

    def shrunk(self) -> Moves:
        """The largest sizes halved until the arguments are small enough, or nothing is left to halve."""
        moves = {size: size for size in (*self._places.inner, *self._places.others)}
        while self.nbytes(moves) > LIMIT_BYTES and max(moves.values()) >= 4 * LEAST:
            largest = max(moves, key=lambda size: moves[size])
            moves[largest] //= 2
        return {size: new for size, new in moves.items() if new != size}

    def first_legal(self, plan: Sequence[Moves]) -> InputSet | None:
        """The set of the first moves that torch takes, with the integers as they are or moved, too."""
        for moves in plan[: _ATTEMPTS // 2]:
            shapes = [self._places.shape(index, moves) for index in range(len(self._recorded))]
            made = self._taken(shapes, moves)
            if made is not None:
                return made
        return None

    def empty(self, small: Moves) -> InputSet | None:
        """The set without rows, if torch takes it and its answer is beyond doubt."""
        for batch in self._places.batches(self._semantics):
            shapes = [self._places.shape(index, small) for index in range(len(self._recorded))]
            for index in batch:
                shapes[index] = (0, *shapes[index][1:])
            made = self._taken(shapes, {**small, self._places.metas[batch[0]].shape[0]: 0})
            if made is not None:
                return None if _is_doubtful(made) else made
        return None

    def _taken(self, shapes: Sequence[tuple[int, ...]], moves: Moves) -> InputSet | None:
        for call in dict.fromkeys((self._maker.call, self._places.call(self._maker.call, moves))):
            try:
                return self._make(call, shapes, moves)
            except Exception as error:  # noqa: BLE001 - an op of a user may refuse by any exception
                self.refusal = (str(error).splitlines() or [type(error).__name__])[0]
        return None

    def _make(self, call: OpCall, shapes: Sequence[tuple[int, ...]], moves: Moves) -> InputSet:
        tensors = resized(self._recorded, self._places.metas, shapes, moves, self._semantics)
        key = f"{self._key}/{sorted(moves.items())}"
        made = inputs.fresh(call, tensors, key, self._semantics.declared)
        if self._maker.device != "cpu":
            # An index that is too great is an exception on a CPU, and the end of the process on a GPU.
            answer(relocate(call, "cpu"), lay_out(made), self._maker.trace.context, "cpu")
        # Of no numbers none is badly conditioned.
        empty = 0 in moves.values()
        return self._maker.make(self._name(shapes), made, probe=NAME, call=call, patterns_only=empty)

    def _name(self, shapes: Sequence[tuple[int, ...]]) -> str:
        """`sizes input 4x64→4x65`: the first two arguments that moved."""
        changed = [
            f"{self._semantics.names.get(index, index)} {_shown(meta.shape)}→{_shown(shape)}"
            for index, (meta, shape) in enumerate(zip(self._places.metas, shapes, strict=True))
            if meta.shape != shape
        ]
        if not changed:
            raise ValueError("nothing moved")
        return f"sizes {', '.join(changed[:2])}"


def _is_doubtful(made: InputSet) -> bool:
    """Whether torch makes NaN of nothing, as a mean does, or a state that nothing came to could also be NaN."""
    answers = [output.answer for output in made.expected.outputs]
    nan = any(bool(torch.isnan(one).any()) for one in answers if one.is_floating_point())
    return nan or any(one.numel() for one in answers[len(made.outputs) :])


def _state(call: OpCall) -> frozenset[int]:
    """Indices of the tensors that are a module's own."""
    arguments = (argument for argument in call.arguments if argument.passed == "state")
    return frozenset(index for argument in arguments for index in tensor_indices(argument.value))


def _sizes_of_state(call: OpCall, state: frozenset[int], metas: Sequence[TensorMeta]) -> set[int]:
    """Sizes that a module was made with, its integers included: they are one with it, and do not move."""
    found = {size for index in state for size in metas[index].shape}
    for argument in call.arguments:
        if argument.passed == "state":
            found |= set(_integers(argument.value))
    return found


def _integers(value: Value) -> Iterator[int]:
    if value.kind == "int" and isinstance(value.value, int):
        yield value.value
    for item in value.items:
        yield from _integers(item)


def _shown(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _moved(value: Value, moves: Moves) -> Value:
    if value.kind == "int" and isinstance(value.value, int):
        return replace(value, value=moves.get(value.value, value.value))
    if value.kind in ("tuple", "list", "size"):
        return replace(value, items=tuple(_moved(item, moves) for item in value.items))
    return value


def _offsets(semantics: Semantics, recorded: Sequence[torch.Tensor], metas: Sequence[TensorMeta]) -> set[int]:
    """Sizes that integers of the call add up to, or end with: offsets and lengths say the same as the size."""
    found: set[int] = set()
    for index, (tensor, meta) in enumerate(zip(recorded, metas, strict=True)):
        known = semantics.entry.kept.get(semantics.names.get(index, "")) == "index"
        if "int" in meta.dtype and tensor.numel() and not known:
            found |= {int(tensor.max()), int(tensor.sum())}
    return found
