"""Probe `special_values`: NaN of both signs in a row, and infinities in a row each, must come out where torch has them.

A set is made only where torch's own answer is beyond doubt. A NaN must not vanish; an infinity is put only into torch's own
ops, whose answer to it is documented or tested, and only where torch makes none of it NaN. Of a user's op the formula decides:
x * (1 - c) is infinite, and x - c * x is NaN. Into what an op chooses from one NaN is put, first or last in a row, if torch
treats it in either place as the greatest number, the least, or one that all depends on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.config import IndexOutput
from pytest_cgins.core.bitwise import all_same, readable
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.verify import inputs, low_bits, op_calls
from pytest_cgins.verify.couplings import tensors_of
from pytest_cgins.verify.input_sets import NARROW, InputSet, InputSetBuilder
from pytest_cgins.verify.semantics import DISTINCT, Semantics, op_word
from pytest_cgins.verify.size_search import ProbedCall
from pytest_cgins.verify.ties import indices_of

NAME = "special_values"
INPUTS = "NaN and infinity"
"""Name of the set."""
SCALES = "a scale of NaN"
"""Name of the set of ops with exponents of scales."""
MASKED = "rows of infinity"
"""Name of the set of ops that choose several elements."""
_IN_PLACE = (1e4, -1e4, 3e4)
"""Numbers in place of NaN: greater and less than others, so that what chooses among elements or cuts off tells them apart."""
_POSITIVE_NAN = float(torch.tensor(0x7FFC << 48).view(torch.float64))
"""Whoever orders bits takes a sign for a number's; with a bit more than the NaN that memory holds before it is written."""
_ORDERS = ((2, 3), (-2, -3), (-3, 3))
"""Times the greatest number, in place of NaN that is greater than all numbers, less than all, or decides whatever it may."""
_ROUNDINGS = 1e-9
"""By how much fp64 may err where such numbers come and go."""
_FIRST, _MIDDLE, _LAST = 0.0, 0.5, 1.0  # of a row: an online softmax begins with its maximum at -inf


def sets(probed_call: ProbedCall, _key: str) -> tuple[list[InputSet], str]:
    """The set, or none and why."""
    builder, reference_set = probed_call.builder, probed_call.reference_set
    semantics = builder.semantics
    if is_derived(builder.call.op):
        return [], "what a gradient of NaN is depends on the formula"
    if reference_set.call.op.startswith("torch.") and op_word(reference_set.call) in DISTINCT:
        masked_rows, why = _nearly_all_masked(builder, reference_set)
        return [*masked_rows, *_chosen_beside_nan(builder, reference_set)[0]], why
    names = reference_set.operators()
    if op_calls.spread(names):
        return [], "NaN spreads as the algorithm has it: transformed tiles and direct sums differ"
    positions = any("int" in meta.dtype for meta in reference_set.outputs)
    if positions or (semantics.chooses and not semantics.entry.nan_wins):
        if op_calls.attend(names):
            return [], "the op attends, and a query of NaN has no greatest score"
        return _chosen_beside_nan(builder, reference_set)
    rows = _Rows.of(semantics, reference_set)
    of_scales = _scale_of_nan(builder, reference_set)
    if rows is None:
        return of_scales, "" if of_scales else "no argument holds numbers that may be replaced"
    # Three products of halves make one of fp32, and infinity minus infinity is NaN there.
    # So do three products of one of complex numbers, whose infinities C leaves to the formula.
    is_complex = any("complex" in meta.dtype for meta in reference_set.layout.metas)
    its_own = reference_set.call.op.startswith("torch.") and not is_complex and not op_calls.multiply(names)
    chosen = _unambiguous(reference_set, rows) if its_own else []
    masked = _fully_masked(semantics, reference_set)
    # What comes of NaN in a row that lets nothing through nobody says: the first row of a mask is not the last.
    row = rows.count - 1 if masked else rows.count // 2
    # x86 makes the negative one of 0 * inf.
    nans = [(-math.nan, row, _FIRST), (math.nan, row, _LAST)]
    tensors = rows.with_specials(reference_set, nans)
    # A query of NaN has no greatest score, and torch's own kernels take it for one that sees no key.
    if not op_calls.attend(names) and _makes_nan(reference_set, tensors):
        if not its_own and _spreads(reference_set, rows, nans):
            return of_scales, "" if of_scales else "NaN spreads to numbers that do not depend on it"
        chosen = [*nans, *chosen]
    if not chosen and not masked:
        why = "torch itself makes a number of NaN, or has no one answer to it"
        return of_scales, "" if of_scales else why
    tensors = rows.with_specials(reference_set, chosen)
    for index in masked:
        inputs.block_first_row(tensors[index])
    made = builder.make(INPUTS, tensors, probe=NAME, patterns_only=True)
    if not reference_set.call.op.startswith("torch."):
        made = _zeros_may_stay(made, reference_set, rows, chosen)
    beside = _side_by_side(builder, reference_set, rows) if its_own else ()
    return [made, *beside, *of_scales], ""


def _chosen_beside_nan(builder: InputSetBuilder, plain: InputSet) -> tuple[list[InputSet], str]:
    """Sets with one NaN each, and of torch's own ops one with infinities; or none and why."""
    its_own, rows = plain.call.op.startswith("torch."), _Rows.of(builder.semantics, plain)
    known = builder.semantics.indices(plain.call) if its_own else {}
    others = {meta.dtype for n, meta in enumerate(plain.outputs) if "int" in meta.dtype and n not in known}
    if others and (its_own or others & {*NARROW}):
        return [], f"the op gives {', '.join(sorted(others))}, and no integer stands for NaN"
    if plain.expected.arrangement is not None:
        return [], "several answers of the op are right, and NaN may be in any"
    if rows is None:
        return [], "no argument holds numbers that may be replaced"
    # A user's op may be of other formulas, in which NaN has another place, as where the least are the greatest of -x.
    made, orders = [], set(_ORDERS if its_own else _ORDERS[-1:])
    for name, special in (
        ("NaN first in a row", (_POSITIVE_NAN, 0, _FIRST)),
        ("NaN last in a row", (_POSITIVE_NAN, rows.count - 1, _LAST)),
    ):
        tensors = rows.with_specials(plain, [special])
        orders &= _orders_of_nan(plain, rows, special, known)
        if not orders or not (its_own or _makes_nan(plain, tensors)):
            return [], "torch itself makes a number of NaN, or has no one answer to it"
        beside_nan = builder.make(name, tensors, probe=NAME, patterns_only=True)
        made.append(beside_nan if its_own else _zeros_may_stay(_floats(beside_nan), plain, rows, [special]))
    if its_own and (infinities := _unambiguous(plain, rows)):
        tensors = rows.with_specials(plain, infinities)
        made.append(builder.make("infinity", tensors, probe=NAME, patterns_only=True))
    return made, ""


def _orders_of_nan(
    plain: InputSet, rows: _Rows, special: Special, known: Mapping[int, IndexOutput]
) -> set[tuple[int, int]]:
    """The `_ORDERS` as which torch takes NaN: it has NaN, in fp64 too, just where the two numbers make a difference."""

    def seen(value: float, *, wide: bool = False) -> list[Tensor]:
        """What torch gives, and in place of positions the numbers there."""
        tensors = rows.with_specials(plain, [(value * rows.greatest, *special[1:])])
        outputs = [one.cpu() for one in (plain.widened(tensors) if wide else plain.answer(tensors))]
        given = tensors_of(plain.call, tensors)
        return [
            readable(one)
            if n not in known
            else indices_of(known[n], plain.call.op, given.get(known[n].into), one).values_at(one)
            for n, one in enumerate(outputs)
            if n in known or one.is_floating_point()
        ]

    try:
        nans, of_wide = ([one.isnan() for one in seen(math.nan, wide=wide)] for wide in (False, True))
        beyond = {times: seen(times) for pair in _ORDERS for times in pair}
    except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
        return set()
    shapes = {tuple(one.shape for one in outputs) for outputs in (nans, *beyond.values())}
    if len(shapes) > 1 or not all_same(nans, of_wide):
        return set()
    return {(a, b) for a, b in _ORDERS if all_same(nans, list(map(torch.ne, beyond[a], beyond[b])))}


def _floats(made: InputSet) -> InputSet:
    """The set, where integers may be any: NaN is none."""
    outputs = tuple(
        replace(one, indices=None, answer=torch.full_like(one.answer, torch.iinfo(one.answer.dtype).min))
        if (one.must_equal and one.answer.dtype != torch.bool) or one.indices is not None
        else one
        for one in made.expected.outputs
    )
    return replace(made, expected=replace(made.expected, outputs=outputs))


def _zeros_may_stay(made: InputSet, plain: InputSet, rows: _Rows, specials: Sequence[Special]) -> InputSet:
    """The set, where what a user's op gives as 0 beside NaN may be 0 or NaN: it may leave out what a mask excludes.

    Not where a NaN alone makes one of itself: a relu does not.
    """
    of_itself = [torch.zeros_like(output.answer, dtype=torch.bool) for output in made.expected.outputs]
    for special in specials:
        tensors = rows.with_specials(plain, [special])
        places = rows.touched(tensors).to(plain.device)
        for known, output in zip(of_itself, plain.answer(tensors), strict=True):
            if output.shape == places.shape == known.shape:
                known.logical_or_(readable(output).isnan() & places)
    outputs_of = zip(made.expected.outputs, plain.expected.outputs, of_itself, strict=True)
    kept = [
        replace(output, answer=output.answer.masked_fill((before.answer == 0) & ~known, 0))
        if output.scale is not None
        and output.answer.element_size() > 1
        and output.answer.shape == before.answer.shape
        else output
        for output, before, known in outputs_of
    ]
    return replace(made, expected=replace(made.expected, outputs=tuple(kept)))


def _side_by_side(builder: InputSetBuilder, plain: InputSet, rows: _Rows) -> Iterator[InputSet]:
    """The set with the same infinities in both operands, of ops of torch that make no NaN of them."""
    metas, facts = plain.layout.metas, builder.semantics.facts
    first, *others = (index for index, _ in inputs.data(builder.semantics, plain.tensors()))
    beside = [index for index in others if metas[index].shape == metas[first].shape]
    if beside and facts is not None and facts.sort == "binary":
        for value, row in ((math.inf, 0), (-math.inf, rows.count - 1)):
            tensors = plain.tensors()
            rows.put(tensors, [(value, row, _MIDDLE)], beside[:1])
            if not _makes_nan(plain, tensors):
                yield builder.make(f"{value} in both", tensors, probe=NAME, patterns_only=True)


def _scale_of_nan(builder: InputSetBuilder, reference_set: InputSet) -> list[InputSet]:
    """The set in which the last exponent of each argument of scales has the code of NaN, where torch makes NaN of it."""
    tensors, semantics = reference_set.tensors(), builder.semantics
    exponents = [one for index, one in enumerate(tensors) if low_bits.has_nan_code(semantics, index, one)]
    for tensor in exponents:
        low_bits.put_nan(tensor)
    if not exponents or not _makes_nan(reference_set, tensors):
        return []
    own, wide = reference_set.answer(tensors), reference_set.widened(tensors)
    if any(bool((torch.isnan(one) & ~torch.isnan(more)).any()) for one, more in zip(own, wide, strict=True)):
        return []  # it is no code to the op, which takes it for a power of two that fp32 does not have
    return [builder.make(SCALES, tensors, probe=NAME, patterns_only=True)]


def _nearly_all_masked(builder: InputSetBuilder, reference_set: InputSet) -> tuple[list[InputSet], str]:
    """The set with two numbers and infinities in a row, as logits that were masked: each place is chosen once, all the same."""
    tensors = reference_set.tensors()
    chosen = next((one for _, one in inputs.data(builder.semantics, tensors) if one.numel()), None)
    if chosen is None or not chosen.is_floating_point():
        return [], "no argument holds numbers that may be replaced"
    for row, infinity in ((-1, math.inf), (0, -math.inf)):
        chosen[(row,) * (chosen.ndim - 1)][2:] = infinity
    return [builder.make(MASKED, tensors, probe=NAME, patterns_only=True)], ""


Special = tuple[float, int, float]
"""Value, row, and how far along the row it lies."""


class _Rows:
    """The rows of the first data argument."""

    def __init__(self, index: int, lanes: Tensor, greatest: float) -> None:
        self._index, self._lanes, self.greatest = index, lanes, greatest
        self.count = int(lanes.max()) + 1

    @classmethod
    def of(cls, semantics: Semantics, plain: InputSet) -> _Rows | None:
        for index, tensor in inputs.data(semantics, plain.tensors()):
            if tensor.numel():
                lanes = inputs.lanes_of(semantics, plain.call, index, tensor)
                return cls(index, lanes.expand(tensor.shape), float(readable(tensor).abs().max()))
        return None

    def put(self, tensors: Sequence[Tensor], specials: Sequence[Special], beside: Sequence[int] = ()) -> None:
        for value, row, share in specials:
            places = (self._lanes == row).nonzero()
            place = tuple(places[int(share * (len(places) - 1))].tolist())
            for index in (self._index, *beside):
                tensors[index][place] = value

    def with_specials(self, plain: InputSet, specials: Sequence[Special]) -> list[Tensor]:
        """The set's arguments with specials."""
        tensors = plain.tensors()
        self.put(tensors, specials)
        return tensors

    def touched(self, tensors: Sequence[Tensor]) -> Tensor:
        """Where specials lie in the data."""
        return ~torch.isfinite(readable(tensors[self._index]))


def _unambiguous(reference_set: InputSet, rows: _Rows) -> list[Special]:
    """Infinities of which torch makes no NaN, together or alone."""
    if rows.count < 2:
        return []
    positive, negative = (math.inf, 0, _MIDDLE), (-math.inf, rows.count - 1, _FIRST)
    for tried in ([positive, negative] if rows.count > 2 else [positive], [positive], [negative]):
        tensors = rows.with_specials(reference_set, tried)
        if not _makes_nan(reference_set, tensors):
            return tried
    return []


def _fully_masked(semantics: Semantics, reference_set: InputSet) -> list[int]:
    """Masks of which torch takes a row that lets nothing through."""
    masks = list(_masks(semantics, reference_set))
    tensors = reference_set.tensors()
    for index in masks:
        inputs.block_first_row(tensors[index])
    return masks if masks and not _makes_nan(reference_set, tensors) else []


def _masks(semantics: Semantics, reference_set: InputSet) -> Iterator[int]:
    for index, meta in enumerate(reference_set.layout.metas):
        known = semantics.entry.kept.get(semantics.names.get(index, "")) == "mask"
        if known and len(meta.shape) > 1 and meta.shape[-2] > 1 and meta.numel and not meta.is_expanded:
            yield index


def _spreads(reference_set: InputSet, rows: _Rows, nans: Sequence[Special]) -> bool:
    """Whether some numbers of torch become NaN that stay what they are with others in place of NaN: see `_zeros_may_stay` for 0.

    As behind it in a sum over all rows, of which differences are taken.
    """
    outputs = []
    for value in (None, *_IN_PLACE, math.nan):
        tensors = rows.with_specials(
            reference_set, [] if value is None else [(value, row, share) for _, row, share in nans]
        )
        outputs.append([readable(one) for one in reference_set.widened(tensors)])
    usual, *others, of_nan = outputs
    for n, one in enumerate(usual):
        if one.is_floating_point():
            spread = torch.isnan(of_nan[n]) & (one.abs() > _ROUNDINGS)
            for other in others:
                spread &= (one - other[n]).abs() <= _ROUNDINGS * (1 + one.abs())
            if bool(spread.any()):
                return True
    return False


def _makes_nan(reference_set: InputSet, tensors: Sequence[Tensor]) -> bool:
    try:
        outputs = reference_set.answer(tensors)
    except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
        return True
    return any(bool(torch.isnan(one).any()) for one in outputs if one.is_floating_point())
