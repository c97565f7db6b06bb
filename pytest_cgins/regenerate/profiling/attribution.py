"""What each method is worth: the champion without it, timed against the champion by the sequential test.

A fixed margin would call noise a gain on one device and hide a gain on another. So a method contributes if the kernel
is *proven* slower without it, by more than the test tolerates there, and in a second process too.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from pytest_cgins.core.measurement import Comparison
from pytest_cgins.core.model import Evaluation, Reason, Status
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.profiling import bench
from pytest_cgins.regenerate.profiling.model import Attribution, CaseAttribution
from pytest_cgins.timing.sequential import median_interval

State = Literal["contributes", "no-gain", "essential", "not-ablated", "undecided"]
_WRONG = (Status.INCORRECT, Status.SUSPECT)
_BROKEN = (Status.BUILD_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT)
_UNTRIED = (Status.SKIPPED, Status.INFRASTRUCTURE, Status.TRACE_DRIFT)


def attribute(method: str, evaluations: Sequence[Evaluation]) -> Attribution:
    """What the variant without a method says of the method.

    Args:
        method: its name.
        evaluations: of the variant on each case, timed with the champion as its base; () if it was not tried.
    """
    cases = tuple(map(_case, evaluations))
    state, message = _state(evaluations)
    return Attribution(
        method=method,
        state=state,
        contributes=state in ("contributes", "essential"),
        message=message,
        cases=cases,
    )


def _state(evaluations: Sequence[Evaluation]) -> tuple[State, str]:
    """A wrong answer in one case is enough, as is a proven loss; what only some cases show is told."""
    broken = [one for one in evaluations if one.verdict.status in _BROKEN]
    if broken:  # a variant that was not finished says nothing of the method
        return "not-ablated", _said(broken[0])
    wrong = [one for one in evaluations if one.verdict.status in _WRONG]
    if wrong:
        return "essential", f"without it {wrong[0].case.name} is {_said(wrong[0])}"
    outcomes = [(_comparison(one), one) for one in evaluations if one.verdict.status not in _UNTRIED]
    slower = [one for _, one in outcomes if _is_slower(one)]
    if slower:
        return (
            "contributes",
            f"proven slower without it in {len(slower)} of {counted(len(evaluations), 'case')}",
        )
    unchanged = [one for _, one in outcomes if one.verdict.reason is Reason.UNCHANGED]
    if outcomes and len(unchanged) == len(outcomes):
        return "not-ablated", "the variant is the champion's own build: nothing was taken out"
    tested = [found for found, _ in outcomes if found is not None]
    if not tested:
        why = _said(evaluations[0]) if evaluations else "no case was tried"
        return "not-ablated", f"it was not timed against the champion: {why}"
    if all(found.outcome in ("clean", "faster") for found in tested):
        return (
            "no-gain",
            f"proven not slower without it in {len(tested)} of {counted(len(evaluations), 'case')}",
        )
    return "undecided", "noise hides what it is worth: the blocks were used up, and neither is proven"


def _is_slower(one: Evaluation) -> bool:
    """Proven twice; or once, where a floor that it misses too is what the verdict tells."""
    found = _comparison(one)
    if one.verdict.status is Status.SLOWER:
        return True
    if found is None or found.outcome != "slower":
        return False
    again = (
        one.measurement.confirmation.against("base")
        if one.measurement and one.measurement.confirmation
        else None
    )
    return again is not None and again.outcome == "slower"


def _comparison(one: Evaluation) -> Comparison | None:
    return one.measurement.against("base") if one.measurement is not None else None


def _case(one: Evaluation) -> CaseAttribution:
    measured, found = one.measurement, _comparison(one)
    low = middle = high = None
    champion = None
    if measured is not None and measured.base is not None:
        champion = measured.base.median_ns_per_call
        # Within blocks, where drift cancels, and not the difference of two medians.
        lost = [fmean(without) - fmean(base) for without, base in bench.pairs(measured, "base")]
        low, middle, high = (ns / 1e6 for ns in median_interval(lost))
    return CaseAttribution(
        case=one.case.name,
        status=one.verdict.status.value,
        message=one.verdict.message.partition("\n")[0],
        champion_ns_per_call=champion,
        without_ns_per_call=measured.kernel.median_ns_per_call if measured is not None else None,
        attribution_ms=middle,
        low_ms=low,
        high_ms=high,
        outcome=found.outcome if found is not None else "none",
    )


def _said(one: Evaluation) -> str:
    return f"{one.verdict.status.value}: {one.verdict.message.partition(chr(10))[0]}"
