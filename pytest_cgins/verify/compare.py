"""A kernel's answers on one set of inputs against what is expected: form first, then the two rules.

Form is the number, shape, dtype and layout of outputs, and where NaN and infinities are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from pytest_cgins.building.loading.launcher import POISON_BYTE
from pytest_cgins.config import Tolerance
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.core.number_text import NO_TOLERANCE
from pytest_cgins.core.text import counted, inputs_phrase
from pytest_cgins.core.verdict import Check, Reason, WorstElement
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.expected import ExpectedOutput, GoldElements
from pytest_cgins.verify.locate import describe, describe_spread, number, subject
from pytest_cgins.verify.ties import Arrangement, candidates
from pytest_cgins.verify.tolerance import all_finite

_RULES = {"gold": "recorded gold", "reference": "fp64 reference"}
_NEAR = 8
"""Integers lie near each other if they differ by no more than such a share of the greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSet:
    """What is expected of a kernel on one set of inputs."""

    name: str
    """`recorded`, `fresh`, `edge`."""
    outputs: tuple[ExpectedOutput, ...]
    """Returned tensors first, then the mutated inputs."""
    arguments: Mapping[str, Tensor]
    """Tensors passed directly as arguments, by parameter name: an answer may be a copy of one."""
    note: str = ""
    """How the reference was made where it is not fp64 on the case's device."""
    arrangement: Arrangement | None = None
    """Brings answers into the form that `outputs` have, where several are right as a whole."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return _nbytes((self.outputs, tuple(self.arguments.values())))

    def arranged(self, got: Sequence[Tensor]) -> Sequence[Tensor]:
        """An answer in the form in which it is compared; as it is where its form is wrong."""
        if self.arrangement is None or len(got) != len(self.outputs):
            return got
        pairs = zip(got, (output.answer for output in self.outputs), strict=True)
        alike = all(one.shape == own.shape and one.dtype == own.dtype for one, own in pairs)
        return self.arrangement(got) if alike else got


def _nbytes(held: object) -> int:
    """Bytes of all tensors in nested dataclasses and tuples."""
    if isinstance(held, Tensor):
        return held.nbytes
    if is_dataclass(held):
        held = tuple(getattr(held, field.name) for field in fields(held))
    return sum(map(_nbytes, held)) if isinstance(held, tuple) else 0


def compare(expected: ExpectedSet, got: Sequence[Tensor], tolerance: Tolerance) -> tuple[Check, ...]:
    """All checks of one set of inputs. The rules are left out where the form is wrong."""
    got = expected.arranged(got)
    checked = check_form(expected.name, expected.outputs, got)
    if not checked.passed:
        return (checked,)
    if not expected.outputs:
        return ()
    checks = [checked]
    if any(output.gold is not None for output in expected.outputs):
        checks.append(_rule("gold", expected, got, tolerance))
    if not all(output.gold_alone for output in expected.outputs):
        checks.append(_rule("reference", expected, got, tolerance))
    return tuple(checks)


def accepts(expected: ExpectedSet, forged: Sequence[Tensor], tolerance: Tolerance) -> bool:
    """Whether form and every rule let `forged` pass; stops at the first that does not."""
    forged = expected.arranged(forged)
    return check_form(expected.name, expected.outputs, forged).passed and all(
        _measure(rule, output, answer, tolerance).passed
        for rule in ("reference", "gold")
        for output, answer in zip(expected.outputs, forged, strict=True)
        if (output.gold is not None if rule == "gold" else not output.gold_alone)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One output under one rule."""

    output: ExpectedOutput
    share: float = 0.0
    passed: bool = True
    compared: int = 0
    wrong: Tensor | None = None
    """True where wrong, flat over the compared elements; None where all is well."""
    positions: Tensor | None = None
    """Row-major numbers of the compared elements; None if they are all."""
    worst: WorstElement | None = None
    rms_only: bool = False
    """No element is beyond its own tolerance, all together are beyond the rms."""
    note: str = ""
    """What is wrong, where that is said of no single element."""
    reason: Reason | None = None
    """Another one than that of the rule."""

    def place(self) -> str:
        """Words and picture of where the wrong elements are; "" if there are none."""
        if self.wrong is None:
            return ""
        words = describe_spread if self.rms_only else describe
        if self.positions is None:
            return words(self.wrong.reshape(self.output.shape))
        wrong = torch.zeros(self.output.shape, dtype=torch.bool, device=self.wrong.device)
        seen = torch.zeros_like(wrong)
        wrong.view(-1)[self.positions] = self.wrong
        seen.view(-1)[self.positions] = True
        return words(wrong, seen)


def _rule(
    rule: Literal["gold", "reference"], expected: ExpectedSet, got: Sequence[Tensor], tolerance: Tolerance
) -> Check:
    """One rule over all outputs; what is shown is the worst output."""
    findings = [
        _measure(rule, output, answer, tolerance)
        for output, answer in zip(expected.outputs, got, strict=True)
        if rule == "reference" or output.gold is not None
    ]
    # Where a value is wrong its index is as well, mostly: the value is what is shown.
    worst = max(findings, key=lambda finding: (not finding.passed, finding.reason is None, finding.share))
    passed, map_text = worst.passed, worst.place()
    reason = worst.reason or (Reason.GOLD_MISMATCH if rule == "gold" else Reason.REFERENCE_MISMATCH)
    message = ""
    if not passed:
        drawn = worst.output.draws is not None
        differs = "is not distributed like torch's" if drawn else f"differs from the {_RULES[rule]}"
        differs = "is wrong" if worst.reason else differs
        message = f"{subject(worst.output.index, len(got))} {differs} on {inputs_phrase(expected.name, 'the ')}: {_what(worst, map_text)}"
        if worst.output.must_equal:
            message += _as_positions(worst.output, got[worst.output.index], expected.arguments)
    return Check(
        rule=rule,
        inputs=expected.name,
        passed=passed,
        reason=Reason.OK if passed else reason,
        message=message,
        # JSON has no infinity: a broken NaN pattern counts as the greatest error there is.
        share=min(worst.share, NO_TOLERANCE),
        wrong=sum(int(finding.wrong.sum()) for finding in findings if finding.wrong is not None),
        compared=sum(finding.compared for finding in findings),
        worst=worst.worst,
        map=map_text,
    )


def _as_positions(output: ExpectedOutput, got: Tensor, arguments: Mapping[str, Tensor]) -> str:
    """What to write where wrong integers would be right as positions; "" where they would not."""
    for candidate in candidates(output.index, arguments, output.answer):
        if candidate.fault(got, output.answer) is None:
            return (
                f"\n→ as positions in `{candidate.declared.into}` all point at equal values: where any of these is right, write "
                f"in cgins.yaml: {candidate.declared.yaml}"
            )
    return ""


def _what(finding: _Finding, map_text: str) -> str:
    """How many elements are wrong, the worst of them, and where they are."""
    if finding.note or finding.worst is None or finding.wrong is None:
        return finding.note
    count, worst = int(finding.wrong.sum()), finding.worst
    beyond = (
        f"no element is beyond its own tolerance, but the rms error is {finding.share:.3g} times the allowed "
        f"one; {count} of {counted(finding.compared, 'element lies', 'elements lie')} above that rms"
        if finding.rms_only
        else f"{count} of {counted(finding.compared, 'compared element is', 'compared elements are')} wrong"
    )
    return (
        f"{beyond}. Worst is {list(worst.index)}: expected {worst.expected}, got {worst.got}, allowed "
        f"±{worst.tolerance:.3g}. Where: {map_text.splitlines()[0]}."
    )


def _measure(rule: str, output: ExpectedOutput, answer: Tensor, tolerance: Tolerance) -> _Finding:
    flat, gold = answer.reshape(-1), output.gold
    if output.draws is not None:
        unlike = output.draws.fault(answer)
        if unlike:
            return _Finding(output=output, passed=False, share=2.0, note=unlike)
        return _Finding(output=output, compared=flat.numel())  # with the range, each of them
    if output.indices is not None:
        expected = (output.recorded if rule == "gold" else output.answer).reshape(-1)
        fault = output.indices.fault(answer, expected)
        if fault is None:
            return _Finding(output=output, compared=flat.numel())
        finding = _exact(output, fault.wrong, expected, flat)
        return replace(finding, note=fault.message, reason=fault.reason)
    if output.grid is not None and (rule == "reference" or gold is None or tolerance.kind != "explicit"):
        positions = gold.positions if rule == "gold" and gold is not None else None
        sampled = flat if positions is None else flat[positions]
        off = output.grid.fault(sampled, positions, output.shape)
        if off is None:
            return _Finding(output=output, compared=sampled.numel())
        own = output.answer.reshape(-1)
        finding = _exact(output, off.wrong, own if positions is None else own[positions], sampled, positions)
        return replace(finding, note=off.message, reason=Reason.QUANTIZATION)
    if rule == "reference" or gold is None:
        if output.scale is None:
            own = output.answer.reshape(-1)
            wrong = _wrong_integers(output, flat) if output.doubtful else flat != own
            return _exact(output, wrong, own, flat)
        return _bounded(output, flat, rules.against_reference(output.scale), None, torch.float64)
    values = flat if gold.positions is None else flat[gold.positions]
    if output.scale is None:
        return _exact(output, values != gold.values, gold.values, values, gold.positions)
    bound = gold_bound(output, gold, output.scale, tolerance)
    finding = _bounded(output, values, bound, gold.positions, gold.values.dtype)
    differs = gold.statistics_differ(flat, output.scale, bound) if finding.passed else ""
    return replace(finding, passed=False, share=max(2.0, finding.share), note=differs) if differs else finding


def _wrong_integers(output: ExpectedOutput, got: Tensor) -> Tensor:
    """Which integers are neither those of one of the answers, but for fp32's rounding, nor about as far off as these are.

    An honest kernel that rounds once errs to another side than torch, which rounds twice. Of answers that are far from each
    other, as where one overflowed or they are positions, nothing between them is right.
    """
    answers = (output.answer, *output.doubtful)
    right, got = torch.stack([one.reshape(-1).double() for one in answers]), got.double()
    least, most = right.amin(0), right.amax(0)
    apart = most - least
    between = (apart <= right[1].abs().max() / _NEAR) & (least - apart <= got) & (got <= most + apart)
    return ((got - right).abs() > right.abs() * 2.0**-16).all(0) & ~between


def gold_bound(
    output: ExpectedOutput, gold: GoldElements, scale: rules.Scale, tolerance: Tolerance
) -> rules.Bound:
    """What rule 1 compares the recorded elements of an output with."""
    if tolerance.kind == "explicit":
        return rules.allclose(gold.values, tolerance)
    return rules.against_gold(gold.values, scale, gold.positions, exact_patterns=output.gold_alone)


def _exact(
    output: ExpectedOutput, wrong: Tensor, expected: Tensor, got: Tensor, positions: Tensor | None = None
) -> _Finding:
    """Integers and booleans: right, or wrong."""
    if not bool(wrong.any()):
        return _Finding(output=output, compared=got.numel())
    first = int(wrong.to(torch.uint8).argmax())
    texts = (number(tensor[first].item(), tensor.dtype) for tensor in (expected, got))
    return _Finding(
        output=output,
        share=math.inf,
        passed=False,
        compared=got.numel(),
        wrong=wrong,
        positions=positions,
        worst=output.element(first if positions is None else int(positions[first]), *texts, tolerance=0.0),
    )


def _bounded(
    output: ExpectedOutput, values: Tensor, bound: rules.Bound, positions: Tensor | None, digits: torch.dtype
) -> _Finding:
    """Floating-point values against a bound; `digits` is the type that expected values are printed in."""
    if not values.numel():
        return _Finding(output=output)
    assessed = rules.assess(values, bound)
    rms_only = assessed.peak_share <= 1.0 < assessed.rms_share
    wrong = None
    if not assessed.passed:
        wrong = assessed.z > bound.rms_limit if rms_only else assessed.relative > assessed.relative_limit
    worst = int((assessed.z if rms_only else assessed.relative).argmax())
    texts = (number(bound.expected[worst].item(), digits), number(values[worst].item(), values.dtype))
    flat = worst if positions is None else int(positions[worst])
    return _Finding(
        output=output,
        share=assessed.share,
        passed=assessed.passed,
        compared=values.numel(),
        wrong=wrong,
        positions=positions,
        worst=output.element(flat, *texts, tolerance=bound.allowed_at(worst)),
        rms_only=rms_only,
    )


def check_form(inputs: str, expected: Sequence[ExpectedOutput], got: Sequence[Tensor]) -> Check:
    """The first thing wrong with the form of the outputs, or a passing check."""
    if len(got) != len(expected):
        problem = f"the kernel gave {counted(len(got), 'output tensor')}, the op gives {len(expected)}"
        return failed_form(inputs, Reason.OUTPUT_COUNT, problem)
    for output, answer in zip(expected, got, strict=True):
        form = _Form(inputs, subject(output.index, len(expected)), output, answer)
        failure = form.layout() or form.unwritten_integers() or form.patterns()
        if failure is not None:
            return failure
    empty = bool(expected) and all(output.answer.numel() == 0 for output in expected)
    stated = "the outputs are empty, as those of the op are: nothing was compared" if empty else ""
    return Check(rule="form", inputs=inputs, passed=True, reason=Reason.OK, message=stated, share=None)


def failed_form(inputs: str, reason: Reason, problem: str) -> Check:
    """A failed check of form on a set of inputs, without elements."""
    message = f"{problem} ({inputs_phrase(inputs)})."
    return Check(rule="form", inputs=inputs, passed=False, reason=reason, message=message, share=None)


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory, in whatever order of dimensions."""
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of one output tensor."""

    inputs: str
    subject: str
    output: ExpectedOutput
    answer: Tensor

    def layout(self) -> Check | None:
        """Shape, dtype and strides."""
        answer, expected = self.answer, self.output
        shape, strides = tuple(answer.shape), tuple(answer.stride())
        if answer.numel() == 0 and expected.answer.numel() != 0:
            problem = f"is empty, shape {shape}; expected is shape {expected.shape}"
            return failed_form(self.inputs, Reason.EMPTY, f"{self.subject} {problem}")
        if shape != expected.shape:
            problem = f"has shape {shape}, expected is {expected.shape}; shapes are never broadcast"
            return failed_form(self.inputs, Reason.SHAPE, f"{self.subject} {problem}")
        if answer.dtype != expected.answer.dtype:
            problem = f"is {answer.dtype}, expected is {expected.answer.dtype}".replace("torch.", "")
            return failed_form(self.inputs, Reason.DTYPE, f"{self.subject} {problem}")
        # Strides of dimensions of size 1 mean nothing.
        telling = [
            tuple(s for s, size in zip(one, shape, strict=True) if size > 1)
            for one in (strides, expected.stride, expected.own_stride)
        ]
        fits = telling[0] in telling[1:] or answer.is_contiguous()
        if not fits and not (expected.resized and _is_dense(shape, strides)):
            problem = f"has strides {strides}; expected are the gold's {expected.stride}, or contiguous ones"
            return failed_form(self.inputs, Reason.STRIDE, f"{self.subject} {problem}")
        return None

    def unwritten_integers(self) -> Check | None:
        """Integers are filled with their least value before the call, booleans with neither 0 nor 1.

        Answers of one byte may well have what they are filled with: -128, or 0xA5. Unsigned ones, and those that were rounded
        to a grid, are unwritten only if nothing else is wrong.
        """
        dtype = self.answer.dtype
        if dtype.is_floating_point or dtype.is_complex:
            return None
        if dtype == torch.bool:
            unwritten = self.answer.contiguous().view(torch.uint8).reshape(-1) > 1
            return self._elements(Reason.UNWRITTEN, "never written", unwritten) if unwritten.any() else None
        given, right = self.answer, self.output.answer
        least = torch.iinfo(dtype).min
        if not dtype.is_signed:
            signed = getattr(torch, dtype_name(dtype).removeprefix("u"))
            given, right = (one.contiguous().view(signed) for one in (given, right))
            least = int.from_bytes(bytes([POISON_BYTE] * dtype.itemsize), "little", signed=True)
        wrong = (given == least) & (right != least)
        if not bool(wrong.any()) or (
            (dtype == torch.uint8 or self.output.grid is not None) and bool(((given != right) & ~wrong).any())
        ):
            return None
        return self._elements(Reason.UNWRITTEN, "never written", wrong.reshape(-1))

    def patterns(self) -> Check | None:
        """NaN and infinities must be where both reference and torch have them, and may be where one has.

        Where an intermediate overflows in the case's dtype torch may give infinity or NaN while the fp64
        reference is finite; a better kernel is then as right as torch.
        """
        if self.output.scale is None or not self.answer.numel() or self.output.gold_alone:
            return None
        y, t = self.answer.reshape(-1), self.output.answer.reshape(-1)
        r = self.output.scale.reference.to(t.dtype)
        if all(all_finite(values) for values in (y, r, t)):
            return None
        nan = torch.isnan(y)
        wrong = (nan & ~torch.isnan(r) & ~torch.isnan(t)) | (~nan & torch.isnan(r) & torch.isnan(t))
        if bool(wrong.any()):
            unwritten = wrong & _poison(y)
            if bool(unwritten.any()):
                return self._elements(Reason.UNWRITTEN, "never written", unwritten)
            return self._elements(Reason.NAN_PATTERN, _unlike("NaN", nan, wrong), wrong)
        for infinity in (torch.inf, -torch.inf):
            here = y == infinity
            wrong = (here & (r != infinity) & (t != infinity)) | (~here & (r == infinity) & (t == infinity))
            if bool(wrong.any()):
                return self._elements(Reason.INFINITE_PATTERN, _unlike("infinite", here, wrong), wrong)
        return None

    def _elements(self, reason: Reason, problem: str, wrong: Tensor) -> Check:
        """A failed check with the first wrong element and the map of all; `wrong` is flat."""
        output, count, first = self.output, int(wrong.sum()), int(wrong.to(torch.uint8).argmax())
        map_text = describe(wrong.reshape(output.shape))
        reference = output.answer if output.scale is None else output.scale.reference
        texts = (number(one.reshape(-1)[first].item(), one.dtype) for one in (reference, self.answer))
        worst = output.element(first, *texts, tolerance=0.0)
        message = (
            f"{self.subject}: {count} of {counted(wrong.numel(), 'element')} {'is' if count == 1 else 'are'} {problem} ({inputs_phrase(self.inputs)}). First is "
            f"{list(worst.index)}: expected {worst.expected}, got {worst.got}. "
            f"Where: {map_text.splitlines()[0]}."
        )
        return Check(
            rule="form",
            inputs=self.inputs,
            passed=False,
            reason=reason,
            message=message,
            share=None,
            wrong=count,
            compared=wrong.numel(),
            worst=worst,
            map=map_text,
        )


def _unlike(word: str, here: Tensor, wrong: Tensor) -> str:
    """What the wrong elements are and torch's are not, or the reverse."""
    if bool(here[wrong].all()):
        return f"{word}, but not in torch"
    if not bool(here[wrong].any()):
        return f"not {word}, but {word} in torch"
    return f"{word} in only one of kernel and torch"


def _poison(values: Tensor) -> Tensor:
    """Where the very NaN lies with which outputs are filled before the call.

    It is the positive quiet NaN without payload. Arithmetic on x86 makes the negative one, and on
    NVIDIA GPUs one with all bits set, so that an overflow is not taken for an unwritten element.
    """
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(values.element_size())
    if integers is None:
        return torch.isnan(values)
    poison = torch.full((1,), torch.nan, dtype=values.dtype, device=values.device)
    return values.contiguous().view(integers) == poison.view(integers)
