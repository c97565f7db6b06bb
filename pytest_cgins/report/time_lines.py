"""What the section `cgins` says of times below its tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from pytest_cgins.core.figures import percent
from pytest_cgins.core.model import Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import summary, times


def totals(report: SessionReport) -> Iterator[Text]:
    """One line on what gating times came to, and one for each reason why times gated nothing."""
    gate = times.time_gate(report)
    if gate is not None:
        yield Text(gate_line(gate), style="red" if gate.slower else "yellow" if gate.undecided else "green")
    for one in times.not_held(report.evaluations):
        yield Text(not_held_line(one), style="" if one.floor else "yellow")
    for why, cases in times.uncalibrated(report.evaluations):
        yield Text(uncalibrated_line(why, cases))
    clocks = times.clock_notes(report.evaluations)
    if clocks is not None:
        yield from (Text(f"clocks: {line}") for line in clock_lines(clocks))


def lists(report: SessionReport) -> Iterator[tuple[tuple[str, str], list[Text]]]:
    """How one more and several more of a kind are called, and a line of each: slower and let pass, undecided, probably slower."""
    passed = times.let_pass(report.evaluations)
    more = ("more slower case that was let pass", "more slower cases that were let pass")
    yield more, [_line(one, "let pass by gate.fail_on", "red") for one in passed]
    # Those that fail are listed with the failures.
    left_open = [
        one
        for one in times.undecided(report.evaluations)
        if summary.outcome(one, strict=report.strict) == "pass"
    ]
    yield (
        ("more undecided case", "more undecided cases"),
        [_line(one, one.verdict.status.value, "yellow") for one in left_open],
    )
    likely = times.probably_slower(report.evaluations)
    more = ("more case that is probably slower", "more cases that are probably slower")
    yield more, [_likely(one) for one in likely]
    yield ("", ""), [Text(LIKELY)] if likely else []


LIKELY = (
    f"of the cases proven slower and those probably slower, taken together, at most {percent(times.LISTED_FALSE)} are "
    "expected to be noise"
)


def gate_line(gate: times.TimeGate) -> str:
    """Counts, the base revision and the bound of false alarms."""
    cases = counted(gate.cases, "case")
    return (
        f"{cases} timed against {gate.label}: {gate.same} same, {gate.faster} faster, {gate.slower} slower, "
        f"{gate.undecided} undecided; false alarms in the whole suite: at most {percent(gate.false_alarms)}"
    )


def not_held_line(one: times.NotHeld) -> str:
    """A reason and its cases."""
    cases = counted(one.cases, "case")
    what = "HELD AGAINST TORCH ALONE" if one.floor else "TIMES GATE NOTHING"
    return f"{what} in {cases}: {one.reason}"


def uncalibrated_line(why: str, cases: int) -> str:
    """What is not known of a device's noise, and what to do."""
    return f"not calibrated, in {counted(cases, 'case')}: {why}; a spread between processes is assumed → cgins calibrate"


def clock_lines(clocks: times.ClockNotes) -> Iterator[str]:
    """What was taken anew, and what stood nevertheless."""
    if clocks.redone_blocks:
        yield f"{counted(clocks.redone_blocks, 'block')} of {counted(clocks.redone_cases, 'case')} taken anew, as the clock had moved"
    for reason, cases in clocks.throttled:
        yield f"throttled while {counted(cases, 'case was', 'cases were')} timed: {reason}"


def _line(evaluation: Evaluation, word: str, style: str) -> Text:
    """Name, reason and all that the verdict says, but for remedies."""
    verdict = evaluation.verdict
    said = "; ".join(line for line in verdict.message.splitlines() if not line.startswith("→"))
    return Text(f"{word} ", style=style) + Text(f"{evaluation.label} ({verdict.reason.value}): {said}")


def _likely(evaluation: Evaluation) -> Text:
    test = times.comparison(evaluation)
    assert test is not None
    said = f"{interval(test)} in {counted(len(test.log_ratios), 'block')}"
    return Text("PROBABLY SLOWER ", style="yellow") + Text(f"{evaluation.label}: {said}")
