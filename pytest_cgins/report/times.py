"""What a session found of times, as numbers: counts, medians and lists, all from the documents. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.measurement import Comparison, Measurement
from pytest_cgins.core.number_text import percent
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate import timing_verdict
from pytest_cgins.gate.timing_verdict import NOT_HELD, confirmation
from pytest_cgins.timing.false_discovery import e_bh

LISTED_FALSE = 0.1
"""Share of false alarms that is expected, at most, among the cases proven slower and those listed as probably so."""
LIKELY = f"of the proven and the probably slower cases together, at most {percent(LISTED_FALSE)} are expected to be noise"
_SHORT = 10
"""Characters of a commit that messages show."""


def share_of_peak(measurement: Measurement | None) -> float | None:
    """Share of the measured bandwidth of a call that memory bounds, of the measured compute otherwise."""
    if measurement is None or measurement.roofline is None:
        return None
    roofline = measurement.roofline
    return roofline.share_of_bandwidth if roofline.bound == "memory" else roofline.share_of_compute


def comparison(evaluation: Evaluation) -> Comparison | None:
    """The test against the base revision; None also where the base's answers turned out to be wrong."""
    if evaluation.measurement is None or evaluation.verdict.reason is Reason.NOT_COMPARABLE:
        return None
    return evaluation.measurement.against("base")


def excess(evaluation: Evaluation) -> float:
    """How bad a case is among those of its status: by its time where that is the reproach, else by its error."""
    test, timing = comparison(evaluation), evaluation.measurement
    if evaluation.verdict.status is Status.BELOW_FLOOR and timing is not None:
        return 1 / timing.speedup_vs_torch
    if test is not None:
        return test.ratio
    return (evaluation.correctness.share if evaluation.correctness is not None else None) or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGate:
    """What gating times came to, over all cases that were held against a base revision; a count each."""

    label: str
    """The base revision: `1a2b3c4d5e (merge-base with main)`; or the other environment."""
    cases: int
    """The sum of the next four."""
    same: int
    """Not slower."""
    faster: int
    """Proven faster."""
    slower: int
    """Proven slower, in two processes or in pairs of them."""
    undecided: int
    """Left open by noise, or slower in one process only."""
    false_alarms: float
    """Bound of the chance that any case of the suite was called slower that is not."""


def time_gate(report: SessionReport) -> TimeGate | None:
    """Counted from the tests, whatever became of the cases otherwise; None if no case was held against a base."""
    tested = [
        (evaluation.measurement, test)
        for evaluation in report.evaluations
        if evaluation.measurement is not None and (test := comparison(evaluation)) is not None
    ]
    if not tested:
        return None
    others = dict.fromkeys(
        evaluation.environments.base
        for evaluation in report.evaluations
        if evaluation.environments is not None and comparison(evaluation) is not None
    )
    outcomes = Counter(timing_verdict.confirmed_outcome(one, "base") for one, _ in tested)
    # Boole's inequality: tests of one suite share one level, suites that were merged add up.
    spent = sum(test.alpha / test.tests * (1 if test.sums is None else 2) for _, test in tested)
    level = max(test.alpha for _, test in tested)
    return TimeGate(
        label=", ".join(others) or _label(report, [one for one, _ in tested]),
        cases=len(tested),
        same=outcomes["clean"],
        faster=outcomes["faster"],
        slower=outcomes["slower"],
        undecided=outcomes["inconclusive"] + outcomes["unconfirmed"],
        false_alarms=level if spent <= level * (1 + 1e-9) else min(1.0, spent),
    )


def _label(report: SessionReport, measured: Sequence[Measurement]) -> str:
    commits = list(dict.fromkeys(one.base_revision[:_SHORT] for one in measured))
    if len(commits) == 1 and report.base_revision.startswith(commits[0]):
        return report.base_revision
    return ", ".join(commit for commit in commits if commit) or "the base revision"


def undecided(evaluations: Iterable[Evaluation]) -> tuple[Evaluation, ...]:
    """The `INCONCLUSIVE` cases, those that seem slowest first."""

    def order(evaluation: Evaluation) -> tuple[float, str]:
        test = comparison(evaluation)
        return -(test.ratio if test is not None else 0.0), evaluation.label

    chosen = (one for one in evaluations if one.verdict.status is Status.INCONCLUSIVE)
    return tuple(sorted(chosen, key=order))


def probably_slower(evaluations: Iterable[Evaluation]) -> tuple[Evaluation, ...]:
    """Cases that are not proven slower, and are in e-BH's list with those that are; most evidence first.

    The evidence of a case is the product of both processes' e-values, which is an e-value again; none where the fresh
    process found it not slower, which makes it smaller only.
    """
    tested = [
        (evaluation, test) for evaluation in evaluations if (test := comparison(evaluation)) is not None
    ]
    logs = [_evidence(one, test) for one, test in tested]
    tests = max([len(tested), *(test.tests for _, test in tested)])
    listed = [(logs[index], tested[index][0]) for index in e_bh(logs, LISTED_FALSE, tests=tests)]
    listed.sort(key=lambda pair: (-pair[0], pair[1].label))
    return tuple(one for _, one in listed if _found(one, "base") != "slower")


def _evidence(evaluation: Evaluation, test: Comparison) -> float:
    if timing_verdict.lasting(test):
        return -math.inf
    again = confirmation(evaluation.measurement, "base") if evaluation.measurement is not None else None
    if again is None:
        return test.log_e_slower
    return -math.inf if again.outcome in ("clean", "faster") else test.log_e_slower + again.log_e_slower


def _found(evaluation: Evaluation, arm: Literal["base", "torch"]) -> str | None:
    timing = evaluation.measurement
    return timing_verdict.confirmed_outcome(timing, arm) if timing is not None else None


def let_pass(evaluations: Iterable[Evaluation]) -> tuple[Evaluation, ...]:
    """Cases that are proven slower, or below their floor, and pass because `gate.fail_on` is `never`; slowest first."""
    found = (
        evaluation
        for evaluation in evaluations
        if evaluation.fail_on == "never"
        and evaluation.verdict.status in (Status.SLOWER, Status.BELOW_FLOOR, Status.WEAK)
        and "slower" in (_found(evaluation, "base"), _found(evaluation, "torch"))
    )
    return tuple(sorted(found, key=lambda one: (-excess(one), one.label)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHeld:
    """Right kernels whose time was measured and not held against a base revision."""

    reason: str
    cases: int
    floor: bool
    """Whether they were held against a declared floor at least."""


def not_held(evaluations: Iterable[Evaluation]) -> tuple[NotHeld, ...]:
    """By reason, most frequent first. Kernels that are new or unchanged are not among them: nothing is missing there."""
    counts: Counter[tuple[str, bool]] = Counter()
    for evaluation in evaluations:
        if evaluation.measurement is None or comparison(evaluation) is not None:
            continue
        told = [
            line.partition(NOT_HELD)[2]
            for line in evaluation.verdict.message.splitlines()
            if NOT_HELD in line
        ]
        if evaluation.verdict.reason is Reason.NOT_COMPARABLE:
            told.append(evaluation.verdict.message.partition("\n")[0])
        if told:
            counts[told[0], evaluation.measurement.against("torch") is not None] += 1
    return tuple(NotHeld(reason=reason, cases=n, floor=floor) for (reason, floor), n in counts.most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockNotes:
    """What became of blocks because of the GPU's clock."""

    redone_blocks: int
    """Taken anew."""
    redone_cases: int
    """Cases with such blocks."""
    throttled: tuple[tuple[str, int], ...]
    """Reasons for lower clocks that stood during kept blocks too, and in how many cases."""


def clock_notes(evaluations: Iterable[Evaluation]) -> ClockNotes | None:
    """Of both processes of each case; None if there is nothing to tell."""
    redone = cases = 0
    throttled: Counter[str] = Counter()
    for evaluation in evaluations:
        first = evaluation.measurement
        processes = [first, first.confirmation] if first is not None else []
        clocks = [
            process.clocks for process in processes if process is not None and process.clocks is not None
        ]
        blocks = sum(len(clock.redone) for clock in clocks)
        redone, cases = redone + blocks, cases + bool(blocks)
        throttled.update({reason for clock in clocks for reason in clock.throttled})
    if not (redone or throttled):
        return None
    return ClockNotes(redone_blocks=redone, redone_cases=cases, throttled=tuple(throttled.most_common()))


def uncalibrated(evaluations: Iterable[Evaluation]) -> list[tuple[str, int]]:
    """Why nothing is known of a device's noise, and in how many cases that were timed against a base."""
    found = Counter(
        evaluation.measurement.uncalibrated
        for evaluation in evaluations
        if evaluation.measurement is not None
    )
    return [(why, cases) for why, cases in found.items() if why]
