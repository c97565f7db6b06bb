"""A verdict on time decided again, where more tests share the chance of a false alarm than its run knew of.

"Slower" is proven at E ≥ N/α. Reports that are merged make a greater N, so some of what was proven by itself no longer
is. The log ratio of each block is in the report, and a test with a higher threshold ends no sooner: it is run again on
the same blocks. What a fresh process confirmed shares α with nobody, and stays.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_cgins.config import TimingGate
from pytest_cgins.core.errors import MergeError
from pytest_cgins.core.measurement import Comparison, Measurement, Sums
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.gate.timing_verdict import confirmed_outcome, decide_timing, timing_numbers
from pytest_cgins.timing.sequential import Rule, SequentialTest, with_runs_test
from pytest_cgins.timing.sum_test import SumTest, with_sums

_BY_TIME = (
    Status.PASSED, Status.FASTER, Status.SAME, Status.NEW, Status.WEAK, Status.INCONCLUSIVE, Status.SLOWER,
    Status.BELOW_FLOOR,
)  # fmt: skip
"""Statuses that times have a part in; the others stand whatever the times."""
_TOLD = ("slower", "unconfirmed", "inconclusive")
"""Findings whose messages have figures that hang on N."""


def with_tests(evaluation: Evaluation, tests: int, *, base_label: str) -> Evaluation:
    """The evaluation as a suite with so many tests judges it, no fewer than its own run knew of.

    Raises:
        MergeError: the report does not have what it takes.
    """
    timing = evaluation.measurement
    if timing is None or all(comparison.tests == tests for comparison in timing.comparisons):
        return evaluation
    measured = replace(
        timing, comparisons=tuple(_again(comparison, tests, evaluation) for comparison in timing.comparisons)
    )
    verdict = _verdict(evaluation, timing, measured, base_label)
    return replace(evaluation, measurement=measured, verdict=verdict)


def _again(comparison: Comparison, tests: int, evaluation: Evaluation) -> Comparison:
    if tests < comparison.tests:
        raise _undecidable(evaluation, f"it was one of {comparison.tests}", tests)
    try:
        rule = Rule(
            tolerate=comparison.tolerate,
            catch=comparison.catch,
            alpha=comparison.alpha,
            beta=comparison.beta,
            tests=tests,
            most_blocks=comparison.most_blocks,
        )
        test = SequentialTest(rule, shift=comparison.shift, unit=comparison.unit)
        for log_ratio in comparison.log_ratios:
            test.add(log_ratio)
        again = test.comparison(comparison.against)
        if comparison.runs is not None:
            again = with_runs_test(again, comparison.runs)
        if comparison.sums is not None:
            again = with_sums(again, _sums_again(comparison.sums, rule, comparison.shift))
    except ValueError as error:
        raise _undecidable(evaluation, str(error), tests) from None
    for name in ("log_e_slower", "log_e_clean", "log_e_faster"):
        if not _close(getattr(again, name), getattr(comparison, name)):
            raise _undecidable(evaluation, f"its {name} is not that of its blocks", tests)
    for name in ("log_e_slower", "log_e_faster") if comparison.sums is not None else ():
        if not _close(getattr(again.sums, name), getattr(comparison.sums, name)):
            raise _undecidable(evaluation, f"the {name} of its sums is not that of its sums", tests)
    return again


def _sums_again(sums: Sums, rule: Rule, shift: float) -> Sums:
    test = SumTest(replace(rule, most_blocks=sums.most), calls=sums.calls, shift=shift)
    for log_ratio in sums.log_ratios:
        test.add(log_ratio)
    return test.sums()


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)


def _verdict(evaluation: Evaluation, before: Measurement, after: Measurement, base_label: str) -> Verdict:
    old, correctness = evaluation.verdict, evaluation.correctness
    numbers = timing_numbers(after)
    kept = replace(old, numbers={name: numbers.get(name, number) for name, number in old.numbers.items()})
    if old.status not in _BY_TIME or correctness is None:
        return kept
    if old.reason is Reason.NOT_COMPARABLE:
        # The base was found wrong, and is no measure any more.
        before, after = _without_base(before), _without_base(after)
    findings = [confirmed_outcome(after, arm) for arm in ("base", "torch")]
    changed = findings != [confirmed_outcome(before, arm) for arm in ("base", "torch")]
    if not changed and not any(finding in _TOLD for finding in findings):
        return kept
    then, now = (
        decide_timing(
            gate.decide(correctness, one),
            one,
            base_state={Reason.NO_BASELINE: "new", Reason.UNCHANGED: "unchanged"}.get(old.reason, "none"),
            base_note="",
            gate=_gate(evaluation, one),
            base_label=base_label or "the base revision",
            kernel=evaluation.case.kernel,
        )
        for one in (before, after)
    )
    if (then.status, then.reason) != (old.status, old.reason):
        if changed:
            why = f"it is {old.status.value} ({old.reason.value}), and its times alone make it {then.status.value}"
            raise _undecidable(evaluation, why, after.comparisons[0].tests)
        return kept
    message = now.message
    if now.status is not old.status:
        first = old.message.partition("\n")[0]
        then_n, now_n = (one.comparisons[0].tests for one in (before, after))
        message += (
            f"\nbefore the merge, as one of {counted(then_n, 'test')}, it was {old.status.value}: {first}"
            f"\n→ the merged suite has {counted(now_n, 'test')}; rerun each part with --cgins-suite-tests={now_n} "
            "so that enough blocks are taken"
        )
    return replace(now, message=message, numbers={**old.numbers, **now.numbers})


def _without_base(measurement: Measurement) -> Measurement:
    return replace(
        measurement,
        comparisons=tuple(
            comparison for comparison in measurement.comparisons if comparison.against != "base"
        ),
    )


def _gate(evaluation: Evaluation, measurement: Measurement) -> TimingGate:
    """What of the settings the verdict hangs on; the tests have their own."""
    most = max((comparison.most_blocks for comparison in measurement.comparisons), default=1)
    return TimingGate(fail_on=evaluation.fail_on, max_blocks=most)


def _undecidable(evaluation: Evaluation, why: str, tests: int) -> MergeError:
    return MergeError(
        f"{evaluation.label}: its time cannot be judged again as one of {counted(tests, 'test')}: {why}",
        remedy=f"rerun each part with --cgins-suite-tests={tests}: the merge then keeps its verdicts",
    )
