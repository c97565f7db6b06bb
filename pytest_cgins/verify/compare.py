"""A kernel's answers on one set of inputs against what is expected: form first, then the two rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.figures import NO_TOLERANCE
from pytest_cgins.core.model import Check, Reason, WorstElement
from pytest_cgins.core.text import counted
from pytest_cgins.verify import form_checks
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.indices import Indices, candidates
from pytest_cgins.verify.locate import describe, describe_spread
from pytest_cgins.verify.output_order import Arrangement
from pytest_cgins.verify.text import number, position, subject

_RULES = {"gold": "recorded gold", "reference": "fp64 reference"}


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
        return sum(output.nbytes for output in self.outputs) + sum(a.nbytes for a in self.arguments.values())

    def looser(self, times: float, *, rms_times: float = 1.0) -> ExpectedSet:
        """The same with so many times the limits: of single elements, and of all together."""
        outputs = tuple(
            output if output.scale is None else replace(output, scale=output.scale.looser(times, rms_times))
            for output in self.outputs
        )
        return replace(self, outputs=outputs)

    def arranged(self, got: Sequence[Tensor]) -> Sequence[Tensor]:
        """An answer in the form in which it is compared; as it is where its form is wrong."""
        if self.arrangement is None or len(got) != len(self.outputs):
            return got
        pairs = zip(got, (output.answer for output in self.outputs), strict=True)
        alike = all(one.shape == own.shape and one.dtype == own.dtype for one, own in pairs)
        return self.arrangement(got) if alike else got


def compare(expected: ExpectedSet, got: Sequence[Tensor], tolerance: Tolerance) -> tuple[Check, ...]:
    """All checks of one set of inputs. The rules are left out where the form is wrong."""
    got = expected.arranged(got)
    checked = form_checks.check(expected.name, expected.outputs, got)
    if not checked.passed:
        return (checked,)
    if not expected.outputs:
        return ()
    checks = [checked]
    if any(output.gold is not None for output in expected.outputs):
        checks.append(_rule("gold", expected, got, tolerance))
    checks.append(_rule("reference", expected, got, tolerance))
    return tuple(checks)


def accepts(expected: ExpectedSet, forged: Sequence[Tensor], tolerance: Tolerance) -> bool:
    """Whether form and every rule let `forged` pass; stops at the first that does not."""
    forged = expected.arranged(forged)
    return form_checks.check(expected.name, expected.outputs, forged).passed and all(
        _measure(rule, output, answer, tolerance).passed
        for rule in ("reference", "gold")
        for output, answer in zip(expected.outputs, forged, strict=True)
        if rule == "reference" or output.gold is not None
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
    passed, place = worst.passed, worst.place()
    reason = worst.reason or (Reason.GOLD_MISMATCH if rule == "gold" else Reason.REFERENCE_MISMATCH)
    message = ""
    if not passed:
        drawn = worst.output.draws is not None
        differs = "is not distributed like torch's" if drawn else f"differs from the {_RULES[rule]}"
        differs = "is wrong" if worst.reason else differs
        message = f"{subject(worst.output.index, len(got))} {differs} on the {expected.name} inputs: {_what(worst, place)}"
        if worst.output.scale is None and worst.output.indices is None and not drawn:
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
        map=place,
    )


def _as_positions(output: ExpectedOutput, got: Tensor, arguments: Mapping[str, Tensor]) -> str:
    """What to write where wrong integers would be right as positions; "" where they would not."""
    for candidate in candidates(output.index, arguments, output.answer):
        if candidate.fault(got, output.answer) is None:
            return (
                f"\n→ as positions in `{candidate.said.into}` all point at equal values: where any of these is right, write "
                f"in cgins.yaml: {candidate.said.yaml}"
            )
    return ""


def _what(finding: _Finding, place: str) -> str:
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
        f"±{worst.tolerance:.3g}. Where: {place.splitlines()[0]}."
    )


def _measure(rule: str, output: ExpectedOutput, answer: Tensor, tolerance: Tolerance) -> _Finding:
    flat, gold = answer.reshape(-1), output.gold
    if output.draws is not None:
        fault = output.draws.fault(answer)
        if fault:
            return _Finding(output=output, passed=False, share=2.0, note=fault)
        return _Finding(output=output, compared=flat.numel())  # with the range, each of them
    if output.indices is not None:
        return _pointing(output, output.indices, flat, output.recorded if rule == "gold" else output.answer)
    if rule == "reference" or gold is None:
        if output.scale is None:
            return _exact(output, flat, output.answer.reshape(-1), None)
        return _bounded(output, flat, rules.against_reference(output.scale), None, torch.float64)
    values = flat if gold.positions is None else flat[gold.positions]
    if output.scale is None:
        return _exact(output, values, gold.values, gold.positions)
    if tolerance.kind == "explicit":
        bound = rules.allclose(gold.values, tolerance)
    else:
        bound = rules.against_gold(gold.values, output.scale, gold.positions)
    finding = _bounded(output, values, bound, gold.positions, gold.values.dtype)
    differs = gold.statistics_differ(flat, output.scale, bound) if finding.passed else ""
    return replace(finding, passed=False, share=max(2.0, finding.share), note=differs) if differs else finding


def _pointing(output: ExpectedOutput, indices: Indices, answer: Tensor, expected: Tensor) -> _Finding:
    """Positions: at an equal value, or wrong."""
    fault = indices.fault(answer, expected)
    if fault is None:
        return _Finding(output=output, compared=answer.numel())
    first = int(fault.wrong.to(torch.uint8).argmax())
    texts = (number(int(one.reshape(-1)[first]), one.dtype) for one in (expected, answer))
    return _Finding(
        output=output,
        share=math.inf,
        passed=False,
        compared=answer.numel(),
        wrong=fault.wrong,
        worst=_worst(output, first, None, *texts, allowed=0.0),
        note=fault.what,
        reason=fault.reason,
    )


def _exact(output: ExpectedOutput, values: Tensor, expected: Tensor, positions: Tensor | None) -> _Finding:
    """Integers and booleans: equal, or wrong."""
    wrong = values != expected
    if not bool(wrong.any()):
        return _Finding(output=output, compared=values.numel())
    first = int(wrong.to(torch.uint8).argmax())
    texts = (number(tensor[first].item(), tensor.dtype) for tensor in (expected, values))
    return _Finding(
        output=output,
        share=math.inf,
        passed=False,
        compared=values.numel(),
        wrong=wrong,
        positions=positions,
        worst=_worst(output, first, positions, *texts, allowed=0.0),
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
    return _Finding(
        output=output,
        share=assessed.share,
        passed=assessed.passed,
        compared=values.numel(),
        wrong=wrong,
        positions=positions,
        worst=_worst(output, worst, positions, *texts, allowed=bound.allowed_at(worst)),
        rms_only=rms_only,
    )


def _worst(
    output: ExpectedOutput, among: int, positions: Tensor | None, expected: str, got: str, *, allowed: float
) -> WorstElement:
    flat = among if positions is None else int(positions[among])
    return WorstElement(
        output=output.index,
        index=position(flat, output.shape),
        expected=expected,
        got=got,
        tolerance=allowed,
    )
