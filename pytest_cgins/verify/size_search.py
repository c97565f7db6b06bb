"""Other sizes of a call, tried until torch takes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.device import device_of
from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.text import first_line
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import invoke, relocate
from pytest_cgins.verify import inputs, low_bits, op_calls
from pytest_cgins.verify.expected import gold_order
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.proven_couplings import are_offsets, free_integers
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.semantics import is_position
from pytest_cgins.verify.size_groups import LEAST, Moves, Places, Spot, in_blocks, resized

NAME = "sizes"
LIMIT_BYTES = 256 << 10
"""Arguments that are larger are halved until they are not."""
MANY_BYTES = 2 << 20
"""Largest arguments of sets with many rows, long ones, or many elements of another kind."""
FEW_ROWS = 8
"""Most rows for an interpreted kernel."""
ATTEMPTS = 6  # for one set: what torch refuses costs no more than the check of a form
_NONE: Moves = {}
_NOTHING: Mapping[Spot, int] = {}


DRAWN_BYTES = 64 << 10
"""Size of the arguments of a set that is drawn in several sizes."""
DRAWN_ELEMENTS = 512
"""With fewer elements, a tolerance derived from torch's own errors is a matter of luck."""
_LOOSER = 4.0
"""Limit of single elements, as a multiple of the derived one: drawn rows have other outliers than those it was fitted on (a
shifted variance whose shift was one passed it by 1.3, once in 603 cases), and what a size breaks errs by far more."""
_LOOSER_RMS = 2.0
"""Of all together: where one factor is all rows', as a norm is, a plain sum errs in each element alike."""
_LONG_LOOSER = 16.0
"""Limits in long rows, as a multiple of the usual ones: a plain loop errs more the more it adds up, torch's tree hardly does."""


@dataclass(frozen=True, kw_only=True)
class ProbedCall:
    """A recorded call from which probes make further sets of inputs."""

    builder: InputSetBuilder
    recorded: Sequence[torch.Tensor]
    """Recorded argument tensors, on the CPU."""
    reference_set: InputSet
    """The deciding set from whose numbers the probes' sets are made."""
    key: str
    """Seed of the session and name of the trace."""
    others: Sequence[OpCall] = ()
    """Other recorded calls of the op."""
    claims: Sequence[str] = ()
    """What the kernel is said to take beyond what was recorded."""
    recorded_sizes_only: bool = False
    """Whether the kernel is excused from other sizes."""
    interpreted: bool = False
    """Whether the kernel is interpreted, so that many or long rows take much time."""

    @property
    def gives_positions(self) -> bool:
        """Whether it is a user's op that returns integers of which nobody says what they are."""
        return not self.builder.call.op.startswith("torch.") and self.reference_set.returns_integers

    @cached_property
    def search(self) -> SizeSearch:
        """The search whose draws have the call's own key."""
        return SizeSearch(self, self.key)

    @property
    def _search(self) -> SizeSearch | None:
        return None if self.builder.random or self.search.places.are_tied else self.search

    @cached_property
    def small(self) -> InputSet:
        """The reference set, or where that is large the same call on smaller arguments, if torch takes any."""
        search = self._search if self.reference_set.nbytes > LIMIT_BYTES else None
        smaller = None if search is None else search.first_legal([search.small])
        return smaller or self.reference_set

    @cached_property
    def extra_dimension(self) -> InputSet | None:
        """The call in a dimension more, on small arguments, if torch takes it."""
        return None if self._search is None else self._search.extra_dimension


class _EvenKeys(TorchFunctionMode):
    """Refuses attention with another number of keys than of values: on a CPU torch reads beyond the fewer."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is functional.scaled_dot_product_attention:
            given = {**dict(zip(("query", "key", "value"), args, strict=False)), **(kwargs or {})}
            if given["key"].shape[-2] != given["value"].shape[-2]:
                raise ValueError("keys are not as many as values")
        return func(*args, **(kwargs or {}))


class SizeSearch:
    """Tries moves until torch takes one."""

    def __init__(self, probed_call: ProbedCall, key: str) -> None:
        self._maker, self._key, self._gives_positions = probed_call.builder, key, probed_call.gives_positions
        self.semantics, self.call = self._maker.semantics, self._maker.call
        self.recorded = probed_call.recorded
        self.is_torchs_own = self.call.op.startswith("torch.") and not is_derived(self.call.op)
        """Whether torch itself says what is legal: an op of a user takes more than it is meant for."""
        self.mutated = self._maker.mutated or ()
        """What the recorded call changed."""
        self.context = self._maker.trace.context
        gold = self._maker.trace.gold
        self.given = [] if gold is None else [gold.tensors[number].meta for number in gold_order(gold)]
        self.is_random = bool(self._maker.random)
        self.places = Places(self.call, self.semantics, self.recorded)
        self.refusal = "none"
        self.small = self.shrunk()
        """What makes the arguments small enough, by halves: all other moves begin there."""

    def _on_cpu(
        self, call: OpCall, tensors: Sequence[torch.Tensor], mutated: Sequence[int] = ()
    ) -> list[torch.Tensor]:
        layout = lay_out(tensors, copy=False)
        return answer(relocate(call, "cpu"), layout, self.context, "cpu", mutated=mutated)

    @cached_property
    def _overwrites(self) -> bool:
        """Whether it writes to places that integers name, as an op of a user may by other means."""
        if self.mutated and not self.is_torchs_own:
            return True
        layout = lay_out(self.recorded, copy=False)
        return op_calls.put(op_calls.operators(relocate(self.call, "cpu"), layout, self.context, "cpu"))

    def nbytes(self, moves: Moves) -> int:
        """Bytes of all arguments after moves."""
        return sum(
            math.prod(self.places.shape(index, moves)) * ITEMSIZE[meta.dtype]
            for index, meta in enumerate(self.places.metas)
        )

    def shrunk(self, limit: int = LIMIT_BYTES) -> Moves:
        """The largest sizes halved until the arguments are small enough, or nothing is left to halve."""
        moves = {size: size for size in (*self.places.inner, *self.places.others)}
        while moves and self.nbytes(moves) > limit and max(moves.values()) >= 4 * LEAST:
            largest = max(moves, key=lambda size: moves[size])
            moves[largest] //= 2
        moves = {size: new for size, new in moves.items() if new != size}
        tried = [*self.followed(moves)]
        return next(filter(self.is_legal, tried), moves) if len(tried) > 1 else moves

    def is_legal(self, moves: Moves, overlay: Mapping[Spot, int] = _NOTHING) -> bool:
        """Whether torch takes the recorded numbers in other sizes, which costs less than a set."""
        with suppress(Exception):  # as in taken
            self.answer_to(self.recorded_in(moves, overlay), moves)
            return True
        return False

    def recorded_in(
        self,
        moves: Moves,
        overlay: Mapping[Spot, int] = _NOTHING,
        batch: Moves = _NONE,
        *,
        following: bool = False,
    ) -> list[torch.Tensor]:
        """The recorded numbers in other sizes, with some dimensions replaced; see `taken` and `resized`."""
        places = self.places
        shapes = [
            tuple(overlay.get((index, dim), size) for dim, size in enumerate(places.shape(index, moves)))
            for index in range(len(self.recorded))
        ]
        bounds = {**moves, **batch}
        return resized(self.recorded, places.metas, shapes, bounds, self.semantics, following=following)

    def answer_to(self, tensors: Sequence[torch.Tensor], moves: Moves) -> list[torch.Tensor]:
        """Torch's own to the recorded call on other numbers, with its integers as they are or moved, on the CPU.

        Raises:
            Exception: whatever the op raises.
        """
        moved = self.places.call(self.call, moves)
        if moved != self.call:
            with suppress(Exception):
                return self._on_cpu(self.call, tensors)
        return self._on_cpu(moved, tensors)

    def followed(self, moves: Moves) -> Iterator[Moves]:
        """The moves as they are, and followed by numbers of blocks of a moved size, and of elements that hold several of its numbers.

        Beside scales, whose number a lenient op does not check, the first of these comes before the moves alone; beside neither
        scales nor what may hold packed numbers nothing follows: of 16 numbers a head, four heads are no quarter.
        """
        scales = any(low_bits.is_scale(self.semantics, *one) for one in enumerate(self.recorded))
        if not scales and not any(map(_may_be_packed, self.recorded)):
            yield moves
            return
        first = next(in_blocks(moves, self.places.sizes), None) if scales else None
        yield from (moves,) if first is None else (first, moves)
        yield from (one for one in in_blocks(moves, self.places.sizes) if one != first)

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
        indices = range(len(self.places.metas))
        while others and max(math.prod(self.places.shape(n, fitted)) for n in indices) < DRAWN_ELEMENTS:
            smallest = min(others, key=lambda n: fitted[n])
            fitted[smallest] = 2 * fitted[smallest] + 1
        return fitted

    def first_legal(self, plan: Sequence[Moves]) -> InputSet | None:
        """The set of the first moves that torch takes, with the integers as they are or moved, too, and blocks that follow."""
        for each in (moves for moves in plan[: ATTEMPTS // 2] if not self._is_repeated(moves)):
            for moves in self.followed(each):
                is_worth = moves == each or (self.nbytes(moves) <= MANY_BYTES and self.is_legal(moves))
                input_set = self.taken(moves) if is_worth else None
                if input_set is not None:
                    return input_set
        return None

    def first_legal_long(self, plan: Sequence[Moves]) -> InputSet | None:
        """The same of long rows, with their limits."""
        made = self.first_legal(plan)
        return made and made.looser(_LONG_LOOSER, rms_times=_LONG_LOOSER)

    def _is_repeated(self, moves: Moves) -> bool:
        """Whether an op of a user takes a size for which it is 1, or half of it, and repeats that along another."""
        few = {n: new + 2 for n, new in moves.items() if new in (1, 3) and new not in (n, self.small.get(n))}
        if not few or self.is_torchs_own:
            return False
        larger = (one for one in self.followed({**moves, **few}) if few.items() <= one.items())
        return not any(map(self.is_legal, larger))

    @cached_property
    def extra_dimension(self) -> InputSet | None:
        """The set of a dimension more."""
        return self.extra_dimensions(1)

    def extra_dimensions(self, further: int) -> InputSet | None:
        """The set with two batches where one was, in a dimension more, or in further ones, if torch takes it: of its own ops only.

        Not of backwards: gradients of weights are sums over the dimensions that were recorded, and are written so.
        """
        if not self.is_torchs_own:
            return None
        call, tensors = self.places.call(self.call, self.small), self.recorded_in(self.small)
        for batch in self.places.batches:
            if any(self.places.is_fixed(index, dim) for index in batch for dim in range(tensors[index].ndim)):
                continue  # what is declared by a dimension's number would be another one
            more = list(tensors)
            for copies in range(2, 2 + further):
                for index in batch:
                    more[index] = torch.stack([more[index]] * copies)
            try:
                return self.drawn(call, more, "ranked")
            except Exception as error:  # noqa: BLE001 - as in taken
                self.refusal = first_line(error)
        return None

    def taken(
        self,
        moves: Moves,
        overlay: Mapping[Spot, int] = _NOTHING,
        *,
        batch: Moves = _NONE,
        calls: Sequence[OpCall] = (),
        alone: bool = False,
    ) -> InputSet | None:
        """The set of other sizes, if torch takes them; its refusal is kept.

        Args:
            moves: of all dimensions of a size, and of integers of the call that are equal to it.
            overlay: dimensions that are replaced.
            batch: a size that moves in the overlay alone, and in integers of the call.
            calls: that are tried; by default as recorded and moved.
            alone: whether equal sizes are no longer equal.
        """
        moved = {**moves, **batch}
        usual, key = (self.call, self.places.call(self.call, moved)), str(sorted(moved.items()))
        orders = (True, False) if any(map(is_position, self.semantics.names.values())) else (False,)
        for call, following in itertools.product(dict.fromkeys(calls or usual), orders):
            try:
                tensors = self.recorded_in(moves, overlay, batch, following=following)
                if any(map(_met_twice, self.recorded, tensors)) and self._overwrites:
                    raise ValueError("of two rows for one place either may stay")  # noqa: TRY301
                # Of no numbers none is badly conditioned.
                return self.drawn(call, tensors, key, empty=0 in moved.values(), alone=alone)
            except Exception as error:  # noqa: BLE001 - an op of a user may refuse by any exception
                self.refusal = first_line(error)
        return None

    def drawn(
        self,
        call: OpCall,
        tensors: Sequence[torch.Tensor],
        key: str,
        *,
        empty: bool = False,
        alone: bool = False,
        name: str = "",
    ) -> InputSet:
        """The set of a call with fresh numbers in tensors like these, whose name says what moved unless it is given.

        Raises:
            Exception: whatever the op raises.
        """
        key, declared = f"{self._key}/{key}", self.semantics.declared
        fresh_tensors = inputs.fresh(
            call, tensors, key, declared, legal=False, positions=self._gives_positions
        )
        inputs.put_largest_last(self.semantics, call, fresh_tensors)
        if device_of(self._maker.device).is_accelerator:
            # An index that is too great is an exception on a CPU, and the end of the process on a GPU.
            self._on_cpu(call, fresh_tensors)
        if alone and not call.op.startswith("torch."):
            with _EvenKeys():
                self._on_cpu(call, fresh_tensors)
        elif alone and "attention" in call.op:
            # Of other ops of torch memory is enough, and the first without imports torch's compiler: 1.2 s.
            invoke(relocate(call, "meta"), [one.to("meta") for one in fresh_tensors])
        name = name or self._name([tuple(tensor.shape) for tensor in tensors])
        if not empty and not self.is_torchs_own:
            # Of fresh numbers a single one may be all that counts, as in attention.
            pairs = zip(tensors, fresh_tensors, strict=True)
            self._require_read(call, [one if one.is_floating_point() else new for one, new in pairs])
        taken = self._maker.make(name, fresh_tensors, probe=NAME, call=call, patterns_only=empty)
        out = next((one.value for one in call.arguments if one.name == "out"), None)
        if out is not None and out.kind == "tensor":
            shapes = [one.shape for one in taken.expected.outputs]
            if tuple(tensors[int(out.value or 0)].shape) not in shapes:
                raise ValueError(
                    "torch gives out another size, and a kernel has the memory that it was passed"
                )
        if not alone:
            self._require_form(taken)
        outputs = tuple(
            output
            if output.answer.element_size() == 2  # whose own rounding is most of the limit
            else output.looser(_LOOSER, _LOOSER_RMS)
            for output in taken.expected.outputs
        )
        return replace(taken, expected=replace(taken.expected, outputs=outputs))

    @cached_property
    def _counting(self) -> list[int]:
        """Integers of which nothing is known, and whose greatest counts as they were recorded."""
        free = free_integers(self.call, self.semantics, self.recorded)
        return [index for index in free if self._counts(self.call, self.recorded, index)]

    def _require_read(self, call: OpCall, tensors: Sequence[torch.Tensor]) -> None:
        """Their greatest still count: else they lie beyond what the op has, and it cuts them off. Offsets never fall."""
        for index in self._counting:
            falls = are_offsets(self.recorded[index]) and bool((tensors[index].diff() < 0).any())
            if falls or not self._counts(call, tensors, index):
                raise ValueError(f"{self.semantics.names.get(index)} points beyond what there is, or falls")

    def _counts(self, call: OpCall, tensors: Sequence[torch.Tensor], index: int) -> bool:
        """Whether the greatest of some integers counts, by one less: what is refused then does."""
        if not tensors[index].numel() or int(tensors[index].max()) < 1:
            return False
        less = [*tensors[:index], tensors[index].clone(), *tensors[index + 1 :]]
        less[index].view(-1)[int(less[index].argmax())] -= 1
        with suppress(Exception):  # as in taken
            return not all_same(*(self._on_cpu(call, given, self.mutated) for given in (tensors, less)))
        return True

    def _require_form(self, taken: InputSet) -> None:
        """An output whose rows were those of an argument has such rows still: else torch repeats one along another.

        Half a head of 2 elements is one, which goes with any number of angles.
        """
        for old, new in zip(self.given, taken.outputs, strict=False):
            alike = [index for index, meta in enumerate(self.places.metas) if meta.shape == old.shape]
            rows = {taken.layout.metas[index].shape[1:] for index in alike}
            if rows and new.shape[1:] not in rows:
                raise ValueError(f"an output of {_shown(new.shape)} is no longer as wide as an argument")

    def _name(self, shapes: Sequence[tuple[int, ...]]) -> str:
        """`sizes input 4x64→4x65`: the first two arguments that moved."""
        changed = [
            f"{self.semantics.names.get(index, index)} {_shown(meta.shape)}→{_shown(shape)}"
            for index, (meta, shape) in enumerate(zip(self.places.metas, shapes, strict=True))
            if meta.shape != shape
        ]
        if not changed:
            raise ValueError("nothing moved")
        return f"sizes {', '.join(changed[:2])}"


def _met_twice(recorded: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether places come twice of which each was recorded once; negative ones are none."""
    if recorded.dtype not in (torch.int32, torch.int64):
        return False
    before, after = (one[one >= 0].tolist() for one in (recorded, tensor))
    return len(set(before)) == len(before) and len(set(after)) < len(after)


def _shown(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _may_be_packed(recorded: torch.Tensor) -> bool:
    dtype = recorded.dtype
    return (dtype.itemsize == 1 and dtype != torch.bool) or (dtype == torch.int32 and recorded.ndim > 1)
