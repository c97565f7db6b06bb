"""A session's report as the text of a pull request or of a comment on one: what a reviewer reads in ten seconds."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cgins.core.figures import change, ratio, speedup
from pytest_cgins.core.model import Evaluation, SessionReport
from pytest_cgins.report import in_common, markdown, summary, times
from pytest_cgins.report.causes import Cause, causes
from pytest_cgins.report.counts import counts
from pytest_cgins.report.escape import code
from pytest_cgins.report.failure import headline
from pytest_cgins.report.limited import LimitedPage

COMMENT_LIMIT_NBYTES = 60_000
"""GitHub refuses texts of more than 65,536 characters; whoever posts this may add marks of his own."""
_VERDICTS = ("case", "verdict", "error / allowed", "time vs base", "95%", "speed vs torch", "cases", "again")


def comment(report: SessionReport, *, limit_nbytes: int = COMMENT_LIMIT_NBYTES) -> str:
    """Totals and kernels, the verdicts that want to be looked at, worst first, then the message of each cause."""
    page = _beginning(report, limit_nbytes)
    found = causes(report)
    _add_verdicts(page, _noticed(report, found), found, report, share=0.5)
    name = summary.names(report)
    shared = in_common.in_common(report)
    markdown.add_in_common(page, shared)
    shown = [
        markdown.failure_message(one.first, report, name(one.first), shared)
        for one in found[: markdown.MESSAGES]
    ]
    page.elements(shown, total=len(found), share=0.6)
    markdown.add_rest(page, found, report, share=0.5)
    return page.text()


def pull_request(report: SessionReport) -> str:
    """The evidence for a change: totals, kernels, then the verdict of every case, worst first."""
    page = _beginning(report, COMMENT_LIMIT_NBYTES)
    _add_verdicts(page, _worst_first(report), (), report, share=0.9)
    return page.text()


def _beginning(report: SessionReport, limit_nbytes: int) -> LimitedPage:
    page = LimitedPage(limit_nbytes)
    page.add(markdown.heading(report, counts(report)))
    markdown.add_coverage(page, report)
    markdown.add_kernels(page, report)
    markdown.add_time_totals(page, report)
    if report.compilations:
        markdown.add_builds(page, report.compilations)
    return page


def _add_verdicts(
    page: LimitedPage,
    chosen: list[Evaluation],
    found: Sequence[Cause[Evaluation]],
    report: SessionReport,
    *,
    share: float,
) -> None:
    name = summary.names(report)
    counts_of = {id(cause.first): markdown.cases_of(cause) for cause in found}
    rows = [_verdict(one, report, name(one), counts_of.get(id(one), markdown.NOTHING)) for one in chosen]
    markdown.add_figures(page, "Verdicts", _VERDICTS, rows, share=share)


def _worst_first(report: SessionReport) -> list[Evaluation]:
    """All cases: those that fail by what is proven of them, then by how slow they seem."""
    ordered = summary.worst_first(report.evaluations)
    return sorted(
        ordered, key=lambda one: summary.outcome(one, strict=report.strict) not in ("fail", "error")
    )


def _noticed(report: SessionReport, found: Sequence[Cause[Evaluation]]) -> list[Evaluation]:
    """Those that failed, are undecided, weak, slower and let pass, probably slower, or proven faster.

    Of failures with one cause that were not timed, the first stands for all.
    """
    repeated = {id(one) for cause in found for one in cause.rest if one.measurement is None}
    likely = {(one.config, one.label) for one in times.probably_slower(report.evaluations)}
    return [
        one
        for one in _worst_first(report)
        if (one.config, one.label) in likely
        or (one.verdict.status.value not in ("PASSED", "SAME", "NEW", "SKIPPED") and id(one) not in repeated)
    ]


def _verdict(evaluation: Evaluation, report: SessionReport, name: str, cases: str) -> tuple[str, ...]:
    share = evaluation.correctness.share if evaluation.correctness is not None else None
    timing, test = evaluation.measurement, times.comparison(evaluation)
    failed = summary.outcome(evaluation, strict=report.strict) in ("fail", "error")
    again = markdown.reproduction(evaluation, report)
    return (
        code(name, length=markdown.NAME_LENGTH),
        code(headline(evaluation), length=markdown.HEADLINE_LENGTH),
        markdown.NOTHING if share is None else ratio(share),
        markdown.NOTHING if test is None else change(test.ratio),
        markdown.NOTHING if test is None else f"{change(test.ratio_low)}..{change(test.ratio_high)}",
        markdown.NOTHING if timing is None else speedup(timing.speedup_vs_torch),
        cases,
        code(again, length=2 * markdown.NAME_LENGTH) if failed else markdown.NOTHING,
    )
