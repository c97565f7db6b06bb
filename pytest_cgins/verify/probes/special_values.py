"""Probe `special_values`: NaN of both signs in a row, and infinities in a row each, must come out where torch has them.

A set is made only where torch's own answer is beyond doubt. A NaN must not vanish; an infinity is put only into torch's own
ops, whose answer to it is documented or tested, and only where torch makes none of it NaN. Of a user's op the formula decides:
x * (1 - c) is infinite, and x - c * x is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import readable
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.verify import inputs, low_bits, op_calls
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.semantics import DISTINCT, Semantics, op_word
from pytest_cgins.verify.size_search import ProbedCall

NAME = "special_values"
INPUTS = "NaN and infinity"
"""Name of the set."""
SCALES = "a scale of NaN"
"""Name of the set of ops with exponents of scales."""
MASKED = "rows of infinity"
"""Name of the set of ops that choose several elements."""
_IN_PLACE = (1e4, -1e4, 3e4)
"""Numbers in place of NaN: greater and less than others, so that what chooses among elements or cuts off tells them apart."""
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
        return _nearly_all_masked(builder, reference_set)
    positions = any("int" in meta.dtype for meta in reference_set.outputs)
    if positions or (semantics.chooses and not semantics.entry.nan_wins):
        return [], "the op chooses among elements, and NaN is neither greater nor less than any"
    names = reference_set.operators()
    if op_calls.spread(names):
        return [], "NaN spreads as the algorithm has it: transformed tiles and direct sums differ"
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
    tensors = reference_set.tensors()
    rows.put(tensors, nans)
    # A query of NaN has no greatest score, and torch's own kernels take it for one that sees no key.
    if not op_calls.attend(names) and _makes_nan(reference_set, tensors):
        if not its_own and _spreads(reference_set, rows, nans):
            return of_scales, "" if of_scales else "NaN spreads to numbers that do not depend on it"
        chosen = [*nans, *chosen]
    if not chosen and not masked:
        why = "torch itself makes a number of NaN, or has no one answer to it"
        return of_scales, "" if of_scales else why
    tensors = reference_set.tensors()
    rows.put(tensors, chosen)
    for index in masked:
        inputs.block_first_row(tensors[index])
    made = builder.make(INPUTS, tensors, probe=NAME, patterns_only=True)
    if not reference_set.call.op.startswith("torch."):
        made = _zeros_may_stay(made, reference_set, rows, chosen)
    beside = _side_by_side(builder, reference_set, rows) if its_own else ()
    return [made, *beside, *of_scales], ""


def _zeros_may_stay(made: InputSet, plain: InputSet, rows: _Rows, specials: Sequence[Special]) -> InputSet:
    """The set, where what a user's op gives as 0 beside NaN may be 0 or NaN: it may leave out what a mask excludes.

    Not where a NaN alone makes one of itself: a relu does not.
    """
    of_itself = [torch.zeros_like(output.answer, dtype=torch.bool) for output in made.expected.outputs]
    for special in specials:
        tensors = plain.tensors()
        rows.put(tensors, [special])
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

    def __init__(self, index: int, lanes: Tensor) -> None:
        self._index, self._lanes = index, lanes
        self.count = int(lanes.max()) + 1

    @classmethod
    def of(cls, semantics: Semantics, plain: InputSet) -> _Rows | None:
        for index, tensor in inputs.data(semantics, plain.tensors()):
            if tensor.numel():
                lanes = inputs.lanes_of(semantics, plain.call, index, tensor)
                return cls(index, lanes.expand(tensor.shape))
        return None

    def put(self, tensors: Sequence[Tensor], specials: Sequence[Special], beside: Sequence[int] = ()) -> None:
        for value, row, share in specials:
            places = (self._lanes == row).nonzero()
            place = tuple(places[int(share * (len(places) - 1))].tolist())
            for index in (self._index, *beside):
                tensors[index][place] = value

    def touched(self, tensors: Sequence[Tensor]) -> Tensor:
        """Where specials lie in the data."""
        return ~torch.isfinite(readable(tensors[self._index]))


def _unambiguous(reference_set: InputSet, rows: _Rows) -> list[Special]:
    """Infinities of which torch makes no NaN, together or alone."""
    if rows.count < 2:
        return []
    positive, negative = (math.inf, 0, _MIDDLE), (-math.inf, rows.count - 1, _FIRST)
    for tried in ([positive, negative] if rows.count > 2 else [positive], [positive], [negative]):
        tensors = reference_set.tensors()
        rows.put(tensors, tried)
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
        tensors = reference_set.tensors()
        rows.put(tensors, [] if value is None else [(value, row, share) for _, row, share in nans])
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
