"""The exit code that a report stands for."""

from __future__ import annotations

from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.report import summary

OK, FAILED, NOTHING_GATED = 0, 1, 5
"""As pytest has them: `OK`, `TESTS_FAILED`, `NO_TESTS_COLLECTED`."""
INFRASTRUCTURE = 6
"""All that failed was a drifted trace, a tool or a device."""


def settled(report: SessionReport, exit_status: int) -> int:
    """The exit code of a session that went well so far, or not for a kernel's fault.

    Returns:
        1 in CI where evidence is stale, or in a pull request cases are missing, its base cannot be read
        or settings are weaker; 5 in CI where no kernel was run, else `exit_status`.
    """
    fewer = (report.missing or report.unread) and not (report.allow_fewer or report.told_only)
    weaker = report.weaker and not (report.allow_weaker or report.told_only)
    if report.ci and (report.stale or fewer or weaker):
        return FAILED
    if report.ci and report.empty and not report.allow_fewer and exit_status == OK:
        return NOTHING_GATED
    return exit_status


def of(report: SessionReport) -> int:
    """What a gate over the cases and builds of a report ends with, whatever else its runs met."""
    outcomes = {summary.outcome(evaluation, strict=report.strict) for evaluation in report.evaluations}
    outcomes |= {compilation.verdict.status.outcome for compilation in report.compilations}
    if "fail" in outcomes or (report.strict and summary.ungated(report.evaluations)):
        return FAILED
    if not outcomes:
        return settled(report, NOTHING_GATED)
    return settled(report, INFRASTRUCTURE if "error" in outcomes else OK)
