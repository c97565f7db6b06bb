"""A kernel's answers on one set of inputs against what is expected: form first, then the two rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.model import Check, Reason, WorstElement
from pytest_cgins.verify import form
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.hints import hint
from pytest_cgins.verify.locate import describe
from pytest_cgins.verify.text import number, position, subject, times

_RULES = {"gold": "recorded gold", "reference": "fp64 reference"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSet:
    """What is expected of a kernel on one set of inputs."""

    name: str
    """`recorded`, `fresh`, `edge`."""
    outputs: tuple[ExpectedOutput, ...]
    """Returned tensors first, then the mutated inputs."""
    arguments: Mapping[str, Tensor]
    """Tensors passed directly as arguments, by parameter name: what hints are looked for in."""
    note: str = ""
    """How the reference was made where it is not fp64 on the case's device."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(output.nbytes for output in self.outputs) + sum(a.nbytes for a in self.arguments.values())


def compare(expected: ExpectedSet, got: Sequence[Tensor], tolerance: Tolerance) -> tuple[Check, ...]:
    """All checks of one set of inputs. The rules are left out where the form is wrong."""
    checked = form.check(expected.name, expected.outputs, got)
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
    """Whether every rule lets `forged` (of the right form) pass; stops at the first that does not."""
    for rule in ("reference", "gold"):
        for output, answer in zip(expected.outputs, forged, strict=True):
            if not _measure(rule, output, answer, tolerance).passed:
                return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One output under one rule."""

    output: ExpectedOutput
    share: float
    passed: bool
    compared: int
    wrong: Tensor | None = None
    """True where wrong, flat over the whole output; None where all is well or nothing was compared."""
    worst: int = 0
    """Flat index of the worst element."""
    expected: Tensor | None = None
    """Flat; at `worst_among` is what was expected of the worst element."""
    worst_among: int = 0
    allowed: float = 0.0
    rms_only: bool = False
    """No element is beyond its own tolerance, all together are beyond the rms."""
    note: str = ""


def _rule(rule: str, expected: ExpectedSet, got: Sequence[Tensor], tolerance: Tolerance) -> Check:
    """One rule over all outputs; what is shown is the worst output."""
    findings = [
        _measure(rule, output, answer, tolerance)
        for output, answer in zip(expected.outputs, got, strict=True)
        if rule == "reference" or output.gold is not None
    ]
    worst = max(findings, key=lambda finding: (not finding.passed, finding.share))
    passed = all(finding.passed for finding in findings)
    answer = got[worst.output.index]
    wrong = [finding.wrong for finding in findings if finding.wrong is not None]
    reason = Reason.GOLD_MISMATCH if rule == "gold" else Reason.REFERENCE_MISMATCH
    place = "" if passed or worst.wrong is None else describe(worst.wrong.reshape(answer.shape))
    return Check(
        rule="gold" if rule == "gold" else "reference",
        inputs=expected.name,
        passed=passed,
        reason=Reason.OK if passed else reason,
        message="" if passed else _message(rule, expected, worst, answer, place),
        # JSON has no infinity: a broken NaN pattern counts as the greatest error there is.
        share=min(worst.share, 1e300),
        wrong=sum(int(mask.sum()) for mask in wrong),
        compared=sum(finding.compared for finding in findings),
        worst=_worst_element(worst, answer),
        map=place,
    )


def _measure(rule: str, output: ExpectedOutput, answer: Tensor, tolerance: Tolerance) -> _Finding:
    flat = answer.reshape(-1)
    if rule == "gold":
        gold = output.gold
        if gold is None:
            return _Finding(output=output, share=0.0, passed=True, compared=0)
        values = flat if gold.positions is None else flat[gold.positions]
        if output.scale is None:
            return _exact(output, flat, values, gold.values, gold.positions)
        if tolerance.kind == "explicit":
            bound = rules.allclose(gold.values, tolerance)
        else:
            bound = rules.against_gold(gold.values, output.scale, gold.positions)
        finding = _bounded(output, flat, values, bound, gold.positions)
        if finding.passed and (drifted := gold.statistics_differ(flat, output.scale, bound)):
            return _Finding(
                output=output,
                share=max(finding.share, 2.0),
                passed=False,
                compared=finding.compared,
                note=drifted,
            )
        return finding
    if output.scale is None:
        return _exact(output, flat, flat, output.answer.reshape(-1), None)
    return _bounded(output, flat, flat, rules.against_reference(output.scale), None)


def _exact(
    output: ExpectedOutput, flat: Tensor, values: Tensor, expected: Tensor, positions: Tensor | None
) -> _Finding:
    """Integers and booleans: equal, or wrong."""
    wrong = values != expected
    if not bool(wrong.any()):
        return _Finding(output=output, share=0.0, passed=True, compared=values.numel(), expected=expected)
    among = int(wrong.to(torch.uint8).argmax())
    return _Finding(
        output=output,
        share=math.inf,
        passed=False,
        compared=values.numel(),
        wrong=_spread(wrong, flat, positions),
        worst=among if positions is None else int(positions[among]),
        worst_among=among,
        expected=expected,
    )


def _bounded(
    output: ExpectedOutput, flat: Tensor, values: Tensor, bound: rules.Bound, positions: Tensor | None
) -> _Finding:
    if not values.numel():
        return _Finding(output=output, share=0.0, passed=True, compared=0)
    assessed = rules.assess(values, bound)
    rms_only = assessed.peak_share <= 1.0 < assessed.rms_share
    among = int((assessed.z if rms_only else assessed.ratio).argmax())
    wrong = None
    if not assessed.passed:
        wrong = assessed.z > bound.rms_limit if rms_only else assessed.ratio > 1.0
    allowed = float(bound.unit[among]) * bound.peak_limit
    if bound.slack is not None:
        allowed += float(bound.slack[among])
    return _Finding(
        output=output,
        share=assessed.share,
        passed=assessed.passed,
        compared=values.numel(),
        wrong=None if wrong is None else _spread(wrong, flat, positions),
        worst=among if positions is None else int(positions[among]),
        worst_among=among,
        expected=bound.expected,
        allowed=allowed,
        rms_only=rms_only,
    )


def _spread(wrong: Tensor, flat: Tensor, positions: Tensor | None) -> Tensor:
    """A mask over sampled positions as one over the whole output."""
    if positions is None:
        return wrong
    whole = torch.zeros(flat.numel(), dtype=torch.bool, device=flat.device)
    whole[positions] = wrong
    return whole


def _worst_element(finding: _Finding, answer: Tensor) -> WorstElement | None:
    if finding.expected is None or not finding.compared:
        return None
    expected = finding.expected[finding.worst_among]
    return WorstElement(
        output=finding.output.index,
        index=position(finding.worst, answer.shape),
        expected=number(expected.item(), finding.output.expected_dtype(expected.dtype)),
        got=number(answer.reshape(-1)[finding.worst].item(), answer.dtype),
        tolerance=finding.allowed,
    )


def _message(rule: str, expected: ExpectedSet, finding: _Finding, answer: Tensor, place: str) -> str:
    """One paragraph: rule, inputs, how many, worst element, where, and why if that can be told."""
    differs = f"{subject(finding.output.index, len(expected.outputs))} differs from the {_RULES[rule]} "
    differs += f"on the {expected.name} inputs: "
    if finding.note:
        return differs + finding.note
    worst = _worst_element(finding, answer)
    assert worst is not None
    assert finding.wrong is not None
    count = int(finding.wrong.sum())
    beyond = (
        f"no element is beyond its own tolerance, but the rms error is {times(finding.share)} the allowed one; "
        f"{count} of {finding.compared} elements lie above that rms"
        if finding.rms_only
        else f"{count} of {finding.compared} compared elements are wrong"
    )
    text = (
        f"{differs}{beyond}. Worst is {list(worst.index)}: expected {worst.expected}, got {worst.got}, "
        f"allowed ±{worst.tolerance:.3g}. Wrong are {place.splitlines()[0]}."
    )
    if rule == "reference" and finding.output.scale is not None:
        bound = rules.against_reference(finding.output.scale)
        text += hint(answer, bound, expected.arguments)
    return text
