"""Missing cases, stale evidence and empty runs in the terminal's section."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from pytest_cgins.core.model import SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.report.summary import Ungated

SHOWN_CASES = 10
"""Missing cases that are listed one by one, unless `-v` asks for all."""


def lines(report: SessionReport, *, verbosity: int) -> Iterator[Text]:
    """What a reader must know before trusting a green run; nothing where all is well.

    Args:
        report: the session's.
        verbosity: pytest's. Why nothing was compared is told with `-v` and in CI only.
    """
    if report.missing:
        yield from _missing(report, verbosity)
    for change in report.stale:
        yield Text(f"STALE {change} after it was tested: run again", style="red" if report.ci else "yellow")
    if report.empty and report.ci and not report.compilations:
        style = "yellow" if report.allow_fewer else "red"
        yield Text(f"NOTHING GATED: {empty(report)}", style=style)
    if unread(report):
        yield Text(unread(report), style="red" if _fails(report) else "yellow")
    elif report.coverage_note and (report.ci or verbosity > 0):
        yield Text(f"note: cases are not held against the base revision: {report.coverage_note}")


def headline(report: SessionReport) -> str:
    """How many cases are missing, and of what; one line."""
    cases = counted(len(report.missing), "case")
    verb = "is" if len(report.missing) == 1 else "are"
    return f"{cases} of {report.base_revision} {verb} no longer there"


def weaker_lines(report: SessionReport) -> Iterator[Text]:
    """The settings that are weaker, none left out: what comes before all that was judged by them."""
    if report.weaker:
        fails = report.ci and not (report.allow_weaker or report.told_only)
        yield Text(f"WEAKER {weaker(report)}", style="red" if fails else "yellow")
        yield from (Text(f"  {line}") for line in report.weaker)


def weaker(report: SessionReport) -> str:
    """How many settings are weaker than at the base revision, and what to do; one line."""
    settings = counted(len(report.weaker), "setting")
    verb = "is" if len(report.weaker) == 1 else "are"
    if report.allow_weaker:
        end = "allowed by --cgins-allow-weaker"
    elif report.told_only:
        end = "told only; fails in CI in a pull request, or with --cgins-baseline"
    else:
        end = "put back, or have a person accept it with --cgins-allow-weaker" + (
            "" if report.ci else "; fails in CI"
        )
    return f"{settings} of the gate {verb} weaker than at {report.base_revision}: {end}"


def unread(report: SessionReport) -> str:
    """That a base revision was to be compared with and could not be read, and what to do; "" where that bothers nobody."""
    if not report.unread or report.told_only or not report.ci:
        return ""
    end = (
        "allowed by --cgins-allow-fewer"
        if report.allow_fewer
        else "mend it, or accept it once with --cgins-allow-fewer"
    )
    return f"BASE NOT READ: {report.coverage_note}: {end}"


def _fails(report: SessionReport) -> bool:
    """Whether what is missing, or cannot be read, fails the run."""
    return report.ci and not (report.allow_fewer or report.told_only)


def remedy(report: SessionReport) -> str:
    """What to do about missing cases."""
    if report.allow_fewer:
        return "allowed by --cgins-allow-fewer"
    if report.told_only:
        return "told only; fails in CI in a pull request, or with --cgins-baseline"
    return "put them back, or accept it once with --cgins-allow-fewer" + (
        "" if report.ci else "; fails in CI"
    )


def empty(report: SessionReport) -> str:
    """Why an empty run is none; one line."""
    cases = len(report.evaluations)
    skipped = "the only case was skipped" if cases == 1 else f"all {cases} cases were skipped"
    found = skipped if cases else "there was no case"
    return f"{found}; --cgins-allow-fewer lets such a run pass in CI"


def ungated(one: Ungated) -> str:
    """Why nothing gates an implementation; one line."""
    cases = counted(one.cases, "case")
    return f"its contract covers none of its {cases}: {one.message}"


def _missing(report: SessionReport, verbosity: int) -> Iterator[Text]:
    style = "red" if _fails(report) else "yellow"
    yield Text(f"MISSING {headline(report)}: {remedy(report)}", style=style)
    if verbosity < 0:
        return
    shown = None if verbosity > 0 else SHOWN_CASES
    for name in report.missing[:shown]:
        yield Text(f"  {name}")
    if shown is not None and len(report.missing) > shown:
        yield Text(f"  ... {len(report.missing) - shown} more: -v lists them all")
