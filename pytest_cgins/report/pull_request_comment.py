"""A session's report as the comment of a pull request, and as the text of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.report import markdown, tables, times
from pytest_cgins.report.presentation import Presentation, present
from pytest_cgins.report.results import Cause, Result
from pytest_cgins.report.tables import Table, figures, table

COMMENT_LIMIT_NBYTES = 60_000
"""GitHub refuses texts of more than 65,536 characters; whoever posts this may add marks of his own."""

_VERDICTS = ("error / allowed", "time vs base", "95%", "speed vs torch")
"""Figures of a case: each is a column."""


def comment(report: SessionReport, *, limit_nbytes: int = COMMENT_LIMIT_NBYTES) -> str:
    """Totals and kernels, the verdicts that want to be looked at, worst first, then the message of each cause."""
    presented = present(report)
    page = markdown.beginning(presented, limit_nbytes)
    page.table(_verdicts(_noticed(presented), presented.causes), share=0.5)
    markdown.add_messages(page, presented, presented.causes)
    page.table(markdown.rest(presented.causes), share=0.9)
    return page.text()


def pull_request(report: SessionReport) -> str:
    """The evidence for a change: totals, kernels, then the verdict of every case, worst first."""
    presented = present(report)
    page = markdown.beginning(presented, COMMENT_LIMIT_NBYTES)
    page.table(_verdicts(presented.cases, ()), share=0.9)
    return page.text()


def _verdicts(chosen: Iterable[Result], causes: Sequence[Cause]) -> Table:
    numbers = {id(cause.first): markdown.number(cause) for cause in causes}
    rows = (
        (
            one.name,
            one.headline,
            *(figures(one.source, _VERDICTS) if isinstance(one.source, Evaluation) else ()),
            numbers.get(id(one), tables.EMPTY),
            one.command if one.failed else tables.EMPTY,
        )
        for one in chosen
    )
    return table("Verdicts", ("case", "verdict", *_VERDICTS, "failures", "again"), rows)


def _noticed(presented: Presentation) -> Iterable[Result]:
    """Those that failed, are undecided, weak, slower and let pass, probably slower, or proven faster.

    Of failures with one cause that were not timed, the first stands for all.
    """
    likely = set(map(id, times.probably_slower(presented.report.evaluations)))
    rest = [failed for cause in presented.causes for failed in cause.rest]
    repeated = {
        id(one) for one in rest if isinstance(one.source, Evaluation) and one.source.measurement is None
    }
    for one in presented.cases:
        notable = one.status.value not in ("PASSED", "SAME", "NEW", "SKIPPED") and id(one) not in repeated
        if notable or id(one.source) in likely:
            yield one
