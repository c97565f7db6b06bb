"""What a reader must know before trusting a green run, and what gating times came to: sentences for every format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_cgins.core.number_text import percent
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import GOLD_ALONE
from pytest_cgins.report import summary, times

NOT_ENFORCED = "not enforced in this run; it fails in a pull request in CI, or with --cgins-baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A sentence about a session, with its heading and colour."""

    mark: str
    """What a line of the terminal begins with; "" for nothing."""
    title: str
    """Its heading in Markdown and HTML; "" for nothing."""
    text: str
    """One line."""
    items: tuple[str, ...] = ()
    style: str = ""
    """Its colour: red where it fails the run."""
    quiet: bool = False
    """Whether it is shown with `-v` only."""


def notices(report: SessionReport) -> tuple[Notice, ...]:
    """All notices of a session; first those about what the rest was judged by."""
    return (*weaker(report), *coverage(report), *time_totals(report))


def weaker(report: SessionReport) -> Iterator[Notice]:
    """The settings of the gate that are weaker than at the base revision."""
    if report.weaker:
        fails = report.ci and not (report.allow_weaker or report.told_only)
        text, style = weaker_line(report), "red" if fails else "yellow"
        yield Notice(mark="WEAKER", title="Weaker gate", text=text, items=report.weaker, style=style)


def coverage(report: SessionReport) -> Iterator[Notice]:
    """Missing cases, stale evidence, an empty run, a base that cannot be read, and what no case gates."""
    fails = "red" if report.ci and not (report.allow_fewer or report.told_only) else "yellow"
    for one in summary.ungated(report.evaluations):
        text = f"{one.kernel}/{one.implementation}: {ungated(one)}"
        title = f"Not gated{', which fails under --cgins-strict' * report.strict}"
        yield Notice(mark="NOT GATED", title=title, text=text, style="red" if report.strict else "yellow")
    alone = [one for one in report.evaluations if one.correctness and GOLD_ALONE in one.correctness.notes]
    if alone:
        text = f"in {counted(len(alone), 'case')}: {GOLD_ALONE} → name one: reference: MODULE:FUNCTION"
        yield Notice(mark="GOLD ALONE", title="Gold alone", text=text, style="yellow")
    if stored := [one.stored for one in report.evaluations if one.stored is not None]:
        since = min(one.verified_at for one in stored)[:10]
        text = f"{counted(len(stored), 'case')} of {len(report.evaluations):,}: verified by earlier runs since {since}"
        yield Notice(mark="NOT RUN AGAIN", title="Not run again", text=text)
    if report.missing:
        text = f"{missing(report)}: {remedy(report)}"
        yield Notice(mark="MISSING", title="Missing cases", text=text, items=report.missing, style=fails)
    for change in report.stale:
        text, style = f"{change} after it was tested: run again", "red" if report.ci else "yellow"
        yield Notice(mark="STALE", title="Changed", text=text, style=style)
    if report.empty and not report.compilations:
        style = "yellow" if report.allow_fewer else "red"
        yield Notice(
            mark="NOTHING GATED:",
            title="Nothing was gated",
            text=empty(report),
            style=style,
            quiet=not report.ci,
        )
    if unread(report):
        yield Notice(mark="BASE NOT READ:", title="Base not read", text=unread(report), style=fails)
    elif report.coverage_note:
        text = f"cases are not compared with the base revision: {report.coverage_note}"
        yield Notice(mark="note:", title="Note", text=text, quiet=not report.ci)


def time_totals(report: SessionReport) -> Iterator[Notice]:
    """What gating times came to, why times gated nothing, and what became of clocks."""
    gate = times.time_gate(report)
    if gate is not None:
        style = "red" if gate.slower else "yellow" if gate.undecided else "green"
        yield Notice(mark="", title="", text=gate_line(gate), style=style)
    for one in times.not_held(report.evaluations):
        what = "COMPARED WITH TORCH ONLY" if one.floor else "TIMES GATE NOTHING"
        text = f"in {counted(one.cases, 'case')}: {one.reason}"
        yield Notice(mark=what, title=what.capitalize(), text=text, style="" if one.floor else "yellow")
    for why, cases in times.uncalibrated(report.evaluations):
        text = f"in {counted(cases, 'case')}: {why}; a spread between processes is assumed → cgins calibrate"
        yield Notice(mark="not calibrated,", title="Not calibrated", text=text)
    clocks = times.clock_notes(report.evaluations)
    if clocks is not None:
        yield from (Notice(mark="clocks:", title="Clocks", text=line) for line in _clock_lines(clocks))


def gate_line(gate: times.TimeGate) -> str:
    """Counts, the base revision and the bound of false alarms."""
    cases = counted(gate.cases, "case")
    return (
        f"{cases} timed against {gate.label}: {gate.same} same, {gate.faster} faster, {gate.slower} slower, "
        f"{gate.undecided} undecided; false alarms in the whole suite: at most {percent(gate.false_alarms)}"
    )


def _clock_lines(clocks: times.ClockNotes) -> Iterator[str]:
    """Which blocks were timed again, and which were kept although the clock was throttled."""
    if clocks.redone_blocks:
        blocks, cases = counted(clocks.redone_blocks, "block"), counted(clocks.redone_cases, "case")
        yield f"{blocks} of {cases} timed again because the clock changed"
    for reason, number in clocks.throttled:
        yield f"throttled while {counted(number, 'case was', 'cases were')} timed: {reason}"


def missing(report: SessionReport) -> str:
    """How many cases are missing, and of what; one line."""
    cases = counted(len(report.missing), "case")
    verb = "is" if len(report.missing) == 1 else "are"
    return f"{cases} of {report.base_revision} {verb} no longer there"


def weaker_line(report: SessionReport) -> str:
    """How many settings are weaker than at the base revision, and what to do; one line."""
    settings = counted(len(report.weaker), "setting")
    verb = "is" if len(report.weaker) == 1 else "are"
    if report.allow_weaker:
        end = "allowed by --cgins-allow-weaker"
    elif report.told_only:
        end = NOT_ENFORCED
    else:
        end = "undo that, or have a person accept it with --cgins-allow-weaker" + (
            "" if report.ci else "; fails in CI"
        )
    return f"{settings} of the gate {verb} weaker than at {report.base_revision}: {end}"


def unread(report: SessionReport) -> str:
    """That the base revision could not be read, and what to do; "" unless that fails the run."""
    if not report.unread or report.told_only or not report.ci:
        return ""
    end = (
        "allowed by --cgins-allow-fewer"
        if report.allow_fewer
        else "fix it, or accept it once with --cgins-allow-fewer"
    )
    return f"{report.coverage_note}: {end}"


def remedy(report: SessionReport) -> str:
    """What to do about missing cases."""
    if report.allow_fewer:
        return "allowed by --cgins-allow-fewer"
    if report.told_only:
        return NOT_ENFORCED
    return "restore what is missing, or accept it once with --cgins-allow-fewer" + (
        "" if report.ci else "; fails in CI"
    )


def empty(report: SessionReport) -> str:
    """Why a run gated nothing, and how it may pass; one line."""
    cases = len(report.evaluations)
    skipped = "the only case was skipped" if cases == 1 else f"all {cases} cases were skipped"
    found = skipped if cases else "there was no case"
    return f"{found}; --cgins-allow-fewer lets such a run pass in CI"


def ungated(one: summary.Ungated) -> str:
    """Why nothing gates an implementation; one line."""
    cases = counted(one.cases, "case")
    return f"its contract covers none of its {cases}: {one.message}"
