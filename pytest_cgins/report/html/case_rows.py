"""Cases as rows, worst first."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_cgins.core.figures import change, percent, ratio, speedup, time_ns
from pytest_cgins.core.measurement import Arm
from pytest_cgins.core.model import Evaluation, SessionReport
from pytest_cgins.report import failure, in_common, summary, times
from pytest_cgins.report.html.case_details import details
from pytest_cgins.report.html.listing import EMPTY, Cell, Column, Listing, Row
from pytest_cgins.report.html.naming import Names
from pytest_cgins.report.trend import Trend

COLUMNS = (
    Column(name="reason", numbers=False),
    Column(name="device", numbers=False),
    Column(name="error / allowed"),
    Column(name="time vs base", optional=True),
    Column(name="95%", optional=True),
    Column(name="speed vs torch", optional=True),
    Column(name="kernel", optional=True),
    Column(name="base", optional=True),
    Column(name="torch", optional=True),
    Column(name="speed vs torch.compile", optional=True),
    Column(name="share of peak", optional=True),
)


def cases(report: SessionReport, trends: Mapping[tuple[str, str], Trend]) -> Listing:
    """All cases; `trends` are by configuration file and name of case."""
    shared = in_common.in_common(report)
    failed = summary.failures(report.evaluations, strict=report.strict)
    first = {id(one) for one in failed}
    others = [one for one in summary.worst_first(report.evaluations) if id(one) not in first]
    names = Names(report)
    return Listing(
        id="cases",
        title="Cases",
        device="device",
        columns=COLUMNS,
        rows=[
            _row(one, report, names, trends, in_common.of_case(shared, one, report))
            for one in (*failed, *others)
        ],
    )


def _row(
    evaluation: Evaluation,
    report: SessionReport,
    names: Names,
    trends: Mapping[tuple[str, str], Trend],
    shared: str,
) -> Row:
    trend = names.own(trends.get((evaluation.config, evaluation.case.name)), evaluation)
    return Row(
        name=names.case(evaluation),
        status=evaluation.verdict.status,
        outcome=summary.outcome(evaluation, strict=report.strict),
        kernel=evaluation.case.kernel,
        device=names.device(evaluation),
        cells=_cells(evaluation, names),
        headline=failure.headline(evaluation),
        details=details(evaluation, report, trend, in_common=shared),
    )


def _cells(evaluation: Evaluation, names: Names) -> tuple[Cell, ...]:
    """Below `COLUMNS`."""
    share = evaluation.correctness.share if evaluation.correctness is not None else None
    head = (
        Cell(text=evaluation.verdict.reason.value),
        Cell(text=names.device(evaluation)),
        EMPTY if share is None else Cell(text=ratio(share), number=share),
    )
    timing = evaluation.measurement
    if timing is None:
        return (*head, *(EMPTY,) * (len(COLUMNS) - len(head)))
    test, peak = times.comparison(evaluation), times.share_of_peak(timing)
    compiled = timing.speedup_vs_compile
    between = "" if test is None else f"{change(test.ratio_low)}..{change(test.ratio_high)}"
    return (
        *head,
        EMPTY if test is None else Cell(text=change(test.ratio), number=test.ratio),
        EMPTY if test is None else Cell(text=between, number=test.ratio_low),
        Cell(text=speedup(timing.speedup_vs_torch), number=timing.speedup_vs_torch),
        _time(timing.kernel),
        EMPTY if timing.base is None else _time(timing.base),
        _time(timing.torch),
        EMPTY if compiled is None else Cell(text=speedup(compiled), number=compiled),
        EMPTY if peak is None else Cell(text=percent(peak), number=peak),
    )


def _time(arm: Arm) -> Cell:
    return Cell(text=time_ns(arm.median_ns_per_call), number=arm.median_ns_per_call)
