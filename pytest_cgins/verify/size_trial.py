"""Other sizes of a call, tried until torch takes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from pytest_cgins.model import OpCall, TensorMeta
from pytest_cgins.trace.call import relocate
from pytest_cgins.trace.dtypes import ITEMSIZE
from pytest_cgins.trace.layout import lay_out
from pytest_cgins.verify import inputs
from pytest_cgins.verify.gold import order
from pytest_cgins.verify.maker import InputSet, Maker
from pytest_cgins.verify.places import LEAST, Moves, Places, Spot
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.resize import resized
from pytest_cgins.verify.semantics import Semantics

NAME = "sizes"
LIMIT_BYTES = 256 << 10
"""Arguments that are larger are halved until they are not."""
MANY_ELEMENTS, MANY_BYTES = 68_000, 2 << 20
"""More than 16 bits count, in the set of many rows, as long as its arguments are not larger."""
MOST_ROWS, FEW_ROWS = 2048, 8
"""No set has more: some kernels are Python, row by row. And none for a kernel that is interpreted."""
_ATTEMPTS = 6  # for one set: what torch refuses costs no more than the check of a form
_NOTHING: Mapping[Spot, int] = {}


DRAWN_BYTES = 64 << 10
"""As much has a set of which there are several."""
DRAWN_ELEMENTS = 512
"""Of fewer a tolerance that is derived from torch's own errors is a matter of luck."""
_LOOSER = 4.0
"""Limit of single elements, as a multiple of the derived one: drawn rows have other outliers than those it was fitted on (a
shifted variance whose shift was one passed it by 1.3, once in 603 cases), and what a size breaks errs by far more."""


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


def small(maker: Maker, semantics: Semantics, recorded: Sequence[torch.Tensor], key: str) -> InputSet | None:
    """A set whose arguments are small, for probes that vary something else; None if torch takes none."""
    places = Places(maker.call, semantics, recorded)
    if places.are_tied:
        return None
    trial = Trial(maker, semantics, recorded, key, places)
    return trial.first_legal([trial.small])


class Trial:
    """Tries moves until torch takes one."""

    def __init__(
        self,
        maker: Maker,
        semantics: Semantics,
        recorded: Sequence[torch.Tensor],
        key: str,
        places: Places,
    ) -> None:
        self._maker, self._semantics, self._recorded = maker, semantics, recorded
        self._key, self._places = key, places
        self.refusal = "none"
        self._small: Moves = {}
        if places.inner or places.others:
            self._small = self._shrunk()

    @property
    def small(self) -> Moves:
        """What makes the arguments small enough, by halves: all other moves begin there."""
        return self._small

    def nbytes(self, moves: Moves) -> int:
        """Of all arguments after moves."""
        return sum(
            math.prod(self._places.shape(index, moves)) * ITEMSIZE[meta.dtype]
            for index, meta in enumerate(self._places.metas)
        )

    def _shrunk(self) -> Moves:
        """The largest sizes halved until the arguments are small enough, or nothing is left to halve."""
        moves = {size: size for size in (*self._places.inner, *self._places.others)}
        while self.nbytes(moves) > LIMIT_BYTES and max(moves.values()) >= 4 * LEAST:
            largest = max(moves, key=lambda size: moves[size])
            moves[largest] //= 2
        return {size: new for size, new in moves.items() if new != size}

    def fitted(self, moves: Moves, main: int) -> dict[int, int]:
        """Moves with others than the main size made smaller, then that one, or larger, until the set is of a fair size.

        What was odd stays odd.
        """
        fitted = dict(moves)
        others = [size for size in fitted if size != main]
        for sizes in (others, [main]):
            while self.nbytes(fitted) > DRAWN_BYTES and sizes and max(fitted[n] for n in sizes) > LEAST:
                largest = max(sizes, key=lambda n: fitted[n])
                fitted[largest] = fitted[largest] // 2 | 1
        while others and self._elements(fitted) < DRAWN_ELEMENTS:
            smallest = min(others, key=lambda n: fitted[n])
            fitted[smallest] = 2 * fitted[smallest] + 1
        return fitted

    def _elements(self, moves: Moves) -> int:
        """Of the largest argument after moves."""
        return max(math.prod(self._places.shape(index, moves)) for index in range(len(self._places.metas)))

    def first_legal(self, plan: Sequence[Moves]) -> InputSet | None:
        """The set of the first moves that torch takes, with the integers as they are or moved, too."""
        for moves in plan[: _ATTEMPTS // 2]:
            made = self._taken(self._shapes(moves), moves)
            if made is not None:
                return made
        return None

    def empty(self) -> InputSet | None:
        """The set without rows, if torch takes it and its answer is beyond doubt."""
        for batch in self._places.batches(self._semantics):
            made = self._of_batch(batch, 0)
            if made is not None:
                return None if _is_doubtful(made) else made
        return None

    def many(self, limit: int) -> InputSet | None:
        """The set with as many rows as memory and a limit allow, or at least with more than a few.

        Threads and blocks that share what they must not meet there, and what sums lose by each rounding adds up.
        """
        for batch in self._places.batches(self._semantics):
            size = self._places.metas[batch[0]].shape[0]
            new = 0 if self._places.is_offset(size) else self._most_rows(batch, size, limit)
            made = self._of_batch(batch, new) if new else None
            if made is not None:
                return made
        return None

    def rest(self, found: Sequence[InputSet]) -> InputSet | None:
        """The set in which as much as torch takes moves of what did not move in any other, if there is anything.

        Windows and groups, mostly, and dimensions of 1. What torch refuses to move alone is doubled together: so many
        heads share so many.
        """
        spots = self._places.spots() - {spot for made in found for spot in self._moved(made)}
        there = {self._places.metas[index].shape[dim] for index, dim in spots}
        left = sorted((size for size in self._places.sizes if size in there), reverse=True)
        ones = [
            [dict.fromkeys(choice, 2) for choice in choices]
            for choices in self._places.ones(self._semantics)
            if spots & set(choices[0])
        ]
        moves, overlay, made = dict(self._small), dict[Spot, int](), None
        for size in left[:_ATTEMPTS]:
            tried = {**moves, size: prime_above(moves.get(size, size))}
            one = self._taken(self._shapes(tried), tried)
            if one is not None:
                moves, made = tried, one
        stuck = [size for size in left if moves.get(size, size) == self._small.get(size, size)]
        if len(stuck) > 1:
            tried = {**moves, **{size: 2 * moves.get(size, size) for size in stuck}}
            one = self._taken(self._shapes(tried), tried)
            if one is not None:
                moves, made = tried, one
        for choices in ones:
            for choice in choices:
                one = self._taken(self._shapes(moves, {**overlay, **choice}), moves)
                if one is not None:
                    overlay, made = {**overlay, **choice}, one
                    break
        return made

    def ranked(self) -> InputSet | None:
        """The set with two batches where one was, in a dimension more, if torch takes it: of its own ops only.

        Not of backwards: gradients of weights are sums over the dimensions that were recorded, and are written so.
        """
        op = self._maker.call.op
        if not op.startswith("torch.") or "@" in op:
            return None
        shapes = self._shapes(self._small)
        call = self._places.call(self._maker.call, self._small)
        tensors = resized(self._recorded, self._places.metas, shapes, self._small, self._semantics)
        for batch in self._places.batches(self._semantics):
            if any(self._places.is_fixed(index, dim) for index in batch for dim in range(len(shapes[index]))):
                continue  # what is declared by a dimension's number would be another one
            twice = [torch.stack([one, one]) if index in batch else one for index, one in enumerate(tensors)]
            try:
                return self._of(call, twice, f"{self._key}/ranked")
            except Exception as error:  # noqa: BLE001 - as in _taken
                self.refusal = (str(error).splitlines() or [type(error).__name__])[0]
        return None

    def _of_batch(self, batch: Sequence[int], new: int) -> InputSet | None:
        """The set with another first dimension of some tensors."""
        moves = {**self._small, self._places.metas[batch[0]].shape[0]: new}
        return self._taken(self._shapes(self._small, {(index, 0): new for index in batch}), moves)

    def _most_rows(self, batch: Sequence[int], size: int, limit: int) -> int:
        """How many rows fit; 0 if that is hardly more than there are, and those are not few."""
        metas = [self._places.metas[index] for index in batch]
        gold = self._maker.trace.gold
        given = [] if gold is None else [one.meta for one in gold.tensors]
        rows = [math.prod(self._places.shape(index, self._small)[1:]) for index in batch]
        # Outputs are counted as well: an embedding's are hundreds of times as large as its indices.
        a_row = sum(numel * ITEMSIZE[meta.dtype] for numel, meta in zip(rows, metas, strict=True)) * (
            1 + _nbytes(given) / max(1, _nbytes(metas))
        )
        most_of = max((one.numel for one in given), default=0) / max(1, *(one.numel for one in metas))
        enough = math.ceil(MANY_ELEMENTS / max(1.0, max(rows) * max(1.0, most_of)))
        most = int(LIMIT_BYTES / max(1.0, a_row))
        most = min(limit, max(most, enough) if enough * a_row <= MANY_BYTES else most)
        if most >= 2 * size:
            return prime_below(most)
        return prime_above(size) if size < LEAST else 0

    def _moved(self, made: InputSet) -> Iterator[Spot]:
        """What is of another size in a set than it would be of, were all as small as it must be."""
        for index, meta in enumerate(made.layout.metas):
            shape = self._places.shape(index, self._small)
            if meta.shape and meta.shape[0] == 0 != shape[0]:
                continue
            yield from ((index, dim) for dim, size in enumerate(shape) if meta.shape[dim] != size)

    def _shapes(self, moves: Moves, overlay: Mapping[Spot, int] = _NOTHING) -> list[tuple[int, ...]]:
        """Those of all tensors after moves, and with some dimensions replaced."""
        return [
            tuple(
                overlay.get((index, dim), size) for dim, size in enumerate(self._places.shape(index, moves))
            )
            for index in range(len(self._recorded))
        ]

    def _taken(self, shapes: Sequence[tuple[int, ...]], moves: Moves) -> InputSet | None:
        for call in dict.fromkeys((self._maker.call, self._places.call(self._maker.call, moves))):
            try:
                return self._make(call, shapes, moves)
            except Exception as error:  # noqa: BLE001 - an op of a user may refuse by any exception
                self.refusal = (str(error).splitlines() or [type(error).__name__])[0]
        return None

    def _make(self, call: OpCall, shapes: Sequence[tuple[int, ...]], moves: Moves) -> InputSet:
        tensors = resized(self._recorded, self._places.metas, shapes, moves, self._semantics)
        # Of no numbers none is badly conditioned.
        return self._of(call, tensors, f"{self._key}/{sorted(moves.items())}", empty=0 in moves.values())

    def _of(
        self, call: OpCall, tensors: Sequence[torch.Tensor], key: str, *, empty: bool = False
    ) -> InputSet:
        made = inputs.fresh(call, tensors, key, self._semantics.declared)
        if self._maker.device != "cpu":
            # An index that is too great is an exception on a CPU, and the end of the process on a GPU.
            answer(relocate(call, "cpu"), lay_out(made), self._maker.trace.context, "cpu")
        name = self._name([tuple(one.shape) for one in tensors])
        taken = self._maker.make(name, made, probe=NAME, call=call, patterns_only=empty)
        self._require_form(taken)
        outputs = tuple(
            one
            if one.scale is None or one.answer.element_size() == 2  # whose own rounding is most of the limit
            else replace(one, scale=one.scale.looser(_LOOSER))
            for one in taken.expected.outputs
        )
        return replace(taken, expected=replace(taken.expected, outputs=outputs))

    def _require_form(self, taken: InputSet) -> None:
        """An output whose rows were those of an argument has such rows still: else torch repeats one along another.

        Half a head of 2 elements is one, which goes with any number of angles.
        """
        gold, metas = self._maker.trace.gold, self._places.metas
        recorded = [] if gold is None else [gold.tensors[number].meta for number in order(gold)]
        for old, new in zip(recorded, taken.outputs, strict=False):
            alike = [index for index, meta in enumerate(metas) if meta.shape == old.shape]
            rows = {taken.layout.metas[index].shape[1:] for index in alike}
            if rows and new.shape[1:] not in rows:
                raise ValueError(f"an output of {_shown(new.shape)} is no longer as wide as an argument")

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


def _nbytes(metas: Sequence[TensorMeta]) -> int:
    return sum(meta.numel * ITEMSIZE[meta.dtype] for meta in metas)


def _is_doubtful(made: InputSet) -> bool:
    """Whether torch makes NaN of nothing, as a mean does, or a state that nothing came to could also be NaN."""
    answers = [output.answer for output in made.expected.outputs]
    nan = any(bool(torch.isnan(one).any()) for one in answers if one.is_floating_point())
    return nan or any(one.numel() for one in answers[len(made.outputs) :])


def _shown(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
