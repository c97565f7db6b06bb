"""Why an answer is wrong, where that can be checked: a mistake is made on purpose, and gives the same wrong answer.

A mistake is named if three things hold, else none is:

1. What torch answers with the mistake is at most a quarter as far from the kernel's answer as the right answer is
   (rms over all elements, each in units of what is allowed there), on every set of inputs on which the kernel is wrong.
2. On every set, also those on which it is right, the kernel's answer would pass as the answer to the call with the
   mistake. Arithmetic of fewer bits is excused from this: the order of a kernel's roundings is its own.
3. No other mistake comes half as near, so that the case can tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real, equal, readable
from pytest_cgins.core.layout import Layout
from pytest_cgins.core.trace import OpCall
from pytest_cgins.core.verdict import Check, Reason
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import accepts
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.mistakes import Mistake, as_before, mistakes
from pytest_cgins.verify.op_calls import multiply
from pytest_cgins.verify.rounding import BF16_BITS, TF32_BITS, Arithmetic, Products, fewer_bits, rounded
from pytest_cgins.verify.semantics import Semantics

NEARER = 4.0
"""How many times nearer the kernel's answer must be to that with the mistake than to the right one."""
APART = 2.0
"""How many times farther the next best mistake must be."""
_FEWEST = 30
"""Elements that few significant bits are told from, and different values among them."""
_EXPLAINED = (Reason.GOLD_MISMATCH, Reason.REFERENCE_MISMATCH, Reason.NAN_PATTERN, Reason.INFINITE_PATTERN)
_UNDONE_RMS = 4.0
"""Undoing a factor on an answer that was rounded rounds twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One set of inputs, and a kernel's answer to it."""

    inputs: InputSet
    got: Sequence[Tensor]
    """The answer, complex tensors as pairs; () if it could not be compared."""
    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Whether it is right."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A mistake that gives a kernel's wrong answers."""

    words: str
    remedy: str = ""
    """What to do; "" where the sentence says it."""
    reason: Reason | None = None
    """A reason of its own, which takes the place of the mismatch."""


def explain(answered: Sequence[Answered], builder: InputSetBuilder, tolerance: Tolerance) -> list[Check]:
    """All checks, the failed ones with the mistake that explains all of them, if there is one."""
    checks = [check for one in answered for check in one.checks]
    cause = diagnose(answered, builder, tolerance)
    if cause is None:
        return checks
    words = f"{cause.words}\n→ {cause.remedy}" if cause.remedy else cause.words
    return [
        check
        if check.passed
        else replace(check, reason=cause.reason or check.reason, message=f"{check.message} {words}")
        for check in checks
    ]


def diagnose(
    answered: Sequence[Answered], builder: InputSetBuilder, tolerance: Tolerance
) -> Diagnosis | None:
    """What explains a wrong answer; None if nothing does, or several things do."""
    failed = [answer for answer in answered if not answer.passed]
    reasons = {check.reason for answer in failed for check in answer.checks if not check.passed}
    comparable = all(
        answer.got and all(o.draws is None for o in answer.inputs.expected.outputs) for answer in answered
    )
    if not failed or not comparable or not reasons <= {*_EXPLAINED}:
        return None
    observation = _of_itself(failed)
    if observation:
        return Diagnosis(words=observation)
    fits = sorted(_fits(answered, failed, builder), key=lambda fit: fit[0])
    if fits:
        distance, best = fits[0]
        rivals = [other for other, fit in fits if fit.subject != best.subject]
        if rivals and rivals[0] < APART * distance:
            return None
        if isinstance(best, Mistake):
            return Diagnosis(words=f"It is the right answer to the same call {best.words}.")
        return _imprecise(best, answered, builder, tolerance)
    bits = _representable(failed)
    if bits:
        how = _Imprecision(words=f"Every element has at most {bits}", remedy=_IN_FP32)
        return _imprecise(how, answered, builder, tolerance)
    observation = _rearranged(failed)
    return Diagnosis(words=observation) if observation else None


def explain_probe(
    answered: Answered, builder: InputSetBuilder, tolerance: Tolerance, reference: InputSet
) -> Diagnosis | None:
    """What explains a wrong answer to a probe's set by a kernel that is right on the sets that decide, as the reference is one."""
    if answered.inputs.origin is None:
        cause = diagnose([answered], builder, tolerance)
        return cause or _of_repeated_numbers(answered.inputs, builder.semantics, reference)
    for mistake in as_before(answered.inputs, answered.inputs.origin):
        if answered.got and _would_pass(answered, mistake, answered.inputs.origin):
            words = f"It is the right answer to the same call {mistake.words}."
            return Diagnosis(words=words, reason=Reason.ARGUMENT_IGNORED)
    return Diagnosis(words="", reason=next(check.reason for check in answered.checks if not check.passed))


def _of_repeated_numbers(inputs: InputSet, semantics: Semantics, reference: InputSet) -> Diagnosis | None:
    """What a probe's set has beside other sizes: more indices than were recorded are the recorded ones, again and again."""
    pairs = enumerate(zip(inputs.tensors(), reference.tensors(), strict=False))  # a longer list has more
    names = [
        f"`{semantics.names.get(index, index)}`"
        for index, (new, old) in pairs
        if not new.is_floating_point()
        and new.ndim == old.ndim
        and any(_repeats(new, dim) and not _repeats(old, dim) for dim in range(new.ndim))
    ]
    words = f"There {' and '.join(names)} holds a number twice, as nothing recorded did: look there before at the size."
    return Diagnosis(words=words) if names else None


def _repeats(tensor: Tensor, dim: int) -> bool:
    """Whether a number comes twice along a dimension."""
    return bool((tensor.sort(dim).values.diff(dim=dim) == 0).any())


# ---- mistakes that torch can make


@dataclass(frozen=True, slots=True, kw_only=True)
class _Imprecision:
    """Arithmetic of fewer bits."""

    words: str
    """What the answer has of it, without the full stop."""
    remedy: str
    """What to do instead."""
    change: Callable[[Layout], Layout] | None = None
    """What becomes of the inputs; None leaves them as they are."""
    arithmetic: Arithmetic | None = None
    """How products are made; None as ever."""

    @property
    def subject(self) -> str:
        """See `Mistake.subject`."""
        return self.words


def _fits(
    answered: Sequence[Answered], failed: Sequence[Answered], builder: InputSetBuilder
) -> Iterator[tuple[float, Mistake | _Imprecision]]:
    """What may be the kernel's mistake, and how far its answers are from those with it, as a share of how far from the right ones."""
    for mistake in mistakes(failed[0].inputs, builder.semantics):
        # One set tells most of them apart from the kernel's.
        distance = _greatest_distance(failed, partial(_with_mistake, mistake=mistake))
        if distance <= 1 / NEARER and all(_would_pass(answer, mistake) for answer in answered):
            yield distance, mistake
    if any(check.rule == "form" and not check.passed for answer in failed for check in answer.checks):
        return  # fewer bits make no NaN
    for how in _imprecisions(failed[0].inputs, builder):
        distance = _greatest_distance(failed, partial(_with_imprecision, how=how))
        if distance <= 1 / NEARER:
            yield distance, how


Outputs = tuple[Tensor, ...] | None


def _greatest_distance(failed: Sequence[Answered], answer: Callable[[InputSet], Outputs]) -> float:
    """The greatest distance over the sets, up to the first that is too far."""
    greatest = 0.0
    for failure in failed:
        outputs = answer(failure.inputs)
        greatest = max(greatest, math.inf if outputs is None else _distance(failure, outputs))
        if greatest > 1 / NEARER:
            break
    return greatest


def _attempt(run: Callable[[], tuple[Tensor, ...]], input_set: InputSet) -> Outputs:
    """Outputs of the form of the right ones, or None where torch, or the user's op, gives none."""
    try:
        outputs = run()
    except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
        return None
    expected = input_set.expected.outputs
    alike = len(outputs) == len(expected) and all(
        one.is_complex() == output.complex and tuple(as_real(one).shape) == output.shape
        for one, output in zip(outputs, expected, strict=True)
    )
    return outputs if alike else None


def _with_mistake(input_set: InputSet, mistake: Mistake, dtype: torch.dtype = torch.float64) -> Outputs:
    def run() -> tuple[Tensor, ...]:
        tensors = input_set.tensors()
        call: OpCall = mistake.change(input_set.call, tensors)
        return replace(input_set, call=call).widened(tensors, dtype)

    return _attempt(run, input_set)


def _distance(answered: Answered, outputs: tuple[Tensor, ...]) -> float:
    """How far an answer is from `outputs`, as a share of how far it is from the right ones, where all are finite."""
    to_these, to_right, patterns_differ = 0.0, 0.0, False
    for got, other, output in zip(answered.got, outputs, answered.inputs.expected.outputs, strict=True):
        if output.scale is None:
            continue
        right = output.scale.reference
        y, p, r = (t.to(torch.float64).reshape(-1) for t in (got, as_real(other), right))
        patterns_differ |= bool((torch.isfinite(y) != torch.isfinite(r)).any())
        finite = torch.isfinite(y) & torch.isfinite(p) & torch.isfinite(r)
        unit = _unit_at(p, output)[finite]
        y, p, r = y[finite], p[finite], r[finite]
        to_these += float((((y - p) / unit) ** 2).sum())
        to_right += float((((y - r) / unit) ** 2).sum())
    if not to_right:
        return 0.0 if patterns_differ else math.inf
    return math.sqrt(to_these / to_right)


def _unit_at(p: Tensor, output: ExpectedOutput) -> Tensor:
    """What is allowed at the size of another answer: more where that is larger than the right one."""
    assert output.scale is not None
    r = output.scale.reference.to(torch.float64).reshape(-1)
    least = torch.finfo(torch.float32).tiny
    growth = (p.abs() / r.abs().clamp_min(least)).nan_to_num(nan=1.0, posinf=1.0).clamp(1.0, 2.0**40)
    ulp = torch.finfo(output.answer.dtype).eps * p.abs().nan_to_num(nan=0.0, posinf=0.0)
    return output.scale.unit.clamp_min(least) + torch.where(growth > 2, ulp, torch.zeros_like(ulp))


def _would_pass(answered: Answered, mistake: Mistake, origin: InputSet | None = None) -> bool:
    """Whether a kernel's answer is right for the call with the mistake.

    What is allowed is that of the origin, the set whose numbers the mistake has: beside larger ones they all count as 0.
    """
    outputs = _with_mistake(answered.inputs, mistake)
    if outputs is None:
        return False
    single = _with_mistake(answered.inputs, mistake, torch.float32) or outputs
    expected = []
    own_outputs = answered.inputs.expected.outputs
    limits = own_outputs if origin is None else origin.expected.outputs
    for output, limit, reference, narrow in zip(own_outputs, limits, outputs, single, strict=True):
        reference, narrow = as_real(reference), as_real(narrow)  # noqa: PLW2901
        limit = limit if limit.shape == output.shape and limit.scale else output  # noqa: PLW2901
        answer, scale = narrow.to(output.answer.dtype), None
        if output.scale is not None:
            own = rules.derive(reference.to(torch.float64), answer, narrow.to(torch.float32))
            scale = replace(
                own,
                unit=torch.maximum(own.unit, _unit_at(reference.to(torch.float64).reshape(-1), limit)),
                rms=max(own.rms, limit.scale.rms if limit.scale else 0.0),
                constants=output.scale.constants,
            )
        made = replace(output, answer=answer.contiguous(), scale=scale, doubtful=(), gold=None, grid=None)
        expected.append(made)
    return accepts(replace(answered.inputs.expected, outputs=tuple(expected)), answered.got, Tolerance())


# ---- arithmetic of fewer bits

_IN_FP32 = "compute in whole fp32"
_ELEVEN = "11 significant bits, as TF32 and fp16 have"
_EIGHT = "8 significant bits, as bf16 has"


def _imprecisions(input_set: InputSet, builder: InputSetBuilder) -> Iterator[_Imprecision]:
    """The imprecisions that a kernel for this call may have although they are not allowed."""
    try:
        products = multiply(input_set.operators())
    except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
        return
    single = any(meta.dtype == "float32" for meta in input_set.layout.metas)
    for bits, few in ((TF32_BITS, _ELEVEN), (BF16_BITS, _EIGHT)):
        if not single or (builder.tf32 and bits == TF32_BITS):
            continue
        for cut in (False, True):
            words = f"Its error is that of inputs with {few}"
            yield _Imprecision(words=words, remedy=_IN_FP32, change=partial(rounded, bits=bits, cut=cut))
            if products:
                arithmetic = Arithmetic(operand=partial(fewer_bits, bits=bits, cut=cut))
                yield _Imprecision(words=words, remedy=_IN_FP32, arithmetic=arithmetic)
    for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
        for first in (False, True) if products else ():
            yield _Imprecision(
                words=f"Its error is that of sums that are kept in {name}",
                remedy="accumulate in fp32",
                arithmetic=Arithmetic(total=dtype, begins_with_bias=first),
            )


def _with_imprecision(input_set: InputSet, how: _Imprecision) -> Outputs:
    def run() -> tuple[Tensor, ...]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        layout = input_set.layout if how.change is None else how.change(input_set.layout)
        tensors = replace(input_set, layout=layout).tensors()
        with ExitStack() as stack:
            # Attention is made of products that can be seen.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            products = stack.enter_context(Products(how.arithmetic)) if how.arithmetic is not None else None
            outputs = input_set.widened(tensors)
        if products is not None and not products.made:
            raise NotImplementedError("there is no product that could be made so")
        return outputs

    return _attempt(run, input_set)


def _imprecise(
    how: _Imprecision, answered: Sequence[Answered], builder: InputSetBuilder, tolerance: Tolerance
) -> Diagnosis:
    """The diagnosis, with leave to compute so where that would let the kernel pass."""
    remedy = how.remedy
    if how.remedy == _IN_FP32 and not builder.tf32 and _passes_with_tf32(answered, builder, tolerance):
        remedy += ", or allow it in cgins.yaml, with which this case passes: precision: {allow_tf32: true}"
    return Diagnosis(words=f"{how.words}.", remedy=remedy, reason=Reason.LOW_PRECISION)


def _passes_with_tf32(answered: Sequence[Answered], builder: InputSetBuilder, tolerance: Tolerance) -> bool:
    """Whether `precision: {allow_tf32: true}` lets every answer pass."""
    allowing = replace(builder, tf32=True)
    for answer in answered:
        input_set = answer.inputs
        try:
            if not multiply(input_set.operators()):
                return False
            tensors = input_set.tensors()
            gold = [output.gold for output in input_set.expected.outputs]
            expected = allowing.make(input_set.expected.name, tensors, gold, call=input_set.call).expected
        except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
            return False
        if not accepts(expected, answer.got, tolerance):
            return False
    return True


def _representable(failed: Sequence[Answered]) -> str:
    """The bits of half precision that all elements of wrong fp32 answers have, and the expected ones have not."""
    for name, dtype in ((_EIGHT, torch.bfloat16), (_ELEVEN, torch.float16)):
        short = [_has_few_bits(got, output, dtype) for answer in failed for got, output in _floats(answer)]
        if short and all(short):
            return name
    return ""


def _has_few_bits(got: Tensor, output: ExpectedOutput, dtype: torch.dtype) -> bool:
    right = output.answer
    if got.dtype != torch.float32:
        return False
    different: Tensor = torch.unique(got)
    if different.numel() < _FEWEST:
        return False
    narrow, rounded_ = got.to(dtype).to(torch.float32), right.to(dtype).to(torch.float32)
    if not bool(((narrow == got) | ~torch.isfinite(got)).all()) or bool((rounded_ == right).all()):
        return False
    # Few bits are the error only if it is as small as they make it. 0 / 0 is NaN: both are 0.
    off = ((got - right).abs() / right.abs()).nanmedian()
    return float(off) < 2 * torch.finfo(dtype).eps


# ---- what is seen of the answer itself


def _floats(answered: Answered) -> Iterator[tuple[Tensor, ExpectedOutput]]:
    for got, output in zip(answered.got, answered.inputs.expected.outputs, strict=True):
        if output.scale is not None and got.numel():
            yield got, output


def _of_itself(failed: Sequence[Answered]) -> str:
    """What needs no trial: nothing but zeros, or a copy of an argument."""
    answers = [(failure, got) for failure in failed for got in failure.got]
    if answers and all(got.numel() and not bool(readable(got).any()) for _, got in answers):
        return "Every element is zero."
    for name in failed[0].inputs.expected.arguments:
        copies = [failure.inputs.expected.arguments.get(name) for failure, _ in answers]
        if all(
            copy is not None and copy.shape == got.shape and copy.dtype == got.dtype and equal(copy, got)
            for copy, (_, got) in zip(copies, answers, strict=True)
        ):
            return f"The output is a copy of `{name}`."
    return ""


def _shown_factor(factor: float) -> str:
    """`0.5 times`; near 1 by how much it is more or less, which a rounded factor would hide."""
    if f"{factor:.3g}" != "1":
        return f"{factor:.3g} times"
    return f"{abs(factor - 1):.2%} {'more' if factor > 1 else 'less'} than"


def _rearranged(failed: Sequence[Answered]) -> str:
    """What the right answer was done to, if undoing it on each wrong answer gives the right one."""
    pairs = [pair for one in failed for pair in _floats(one)]
    for sentence, undo in _REARRANGED:
        if pairs and all(_mends(undo, got, output) for got, output in pairs):
            return sentence
    factors = {_shown_factor(_factor(got, output)) for got, output in pairs}
    if len(factors) == 1 and all(_mends(lambda y, o: y / _factor(y, o), *pair) for pair in pairs):
        return f"Every element is {factors.pop()} what is expected."
    return ""


def _mends(undo: Callable[[Tensor, ExpectedOutput], Tensor], got: Tensor, output: ExpectedOutput) -> bool:
    assert output.scale is not None
    y = got.to(torch.float64)
    if y.ndim < 1 or not bool(torch.isfinite(y).all()):
        return False
    undone = undo(y, output).reshape(-1)
    if torch.equal(undone, y.reshape(-1)):
        return False
    bound = rules.against_reference(output.scale)
    assessed = rules.assess(undone, bound)
    nearer = NEARER * rules.rms(assessed.z) <= rules.rms(rules.assess(y.reshape(-1), bound).z)
    return nearer and assessed.peak_share <= 1.0 and assessed.rms_share <= _UNDONE_RMS


def _rolled(by: int) -> Callable[[Tensor, ExpectedOutput], Tensor]:
    return lambda y, _: y.reshape(-1, y.shape[-1]).roll(by, 0)


_REARRANGED: tuple[tuple[str, Callable[[Tensor, ExpectedOutput], Tensor]], ...] = (
    ("It is the right answer transposed.", lambda y, _: y.reshape(y.shape[-1], -1).T.contiguous()),
    ("It is the right answer with the rows moved by -1.", _rolled(1)),
    ("It is the right answer with the rows moved by +1.", _rolled(-1)),
)


def _factor(got: Tensor, output: ExpectedOutput) -> float:
    """The factor that brings the right answer closest to this one; 1 if it is close to 1."""
    assert output.scale is not None
    y, r = got.to(torch.float64).reshape(-1), output.scale.reference.to(torch.float64).reshape(-1)
    regular = torch.isfinite(y) & torch.isfinite(r)
    square = float((r[regular] ** 2).sum())
    factor = float((y[regular] * r[regular]).sum()) / square if square > 0 else 1.0
    return factor if factor and math.isfinite(factor) and abs(factor - 1) > 1e-3 else 1.0
