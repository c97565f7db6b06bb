"""Cases and builds as the page lists them: a table that can be sorted and filtered, and what its rows lead to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pytest_cgins.core.session_report import Compilation, Evaluation
from pytest_cgins.report import tables
from pytest_cgins.report.presentation import Presentation
from pytest_cgins.report.results import Result
from pytest_cgins.report.summary import device_name, rank
from pytest_cgins.report.trend import Trend, changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case or build beside its cells."""

    result: Result
    place: str
    """Address of its details."""
    kernel: str
    device: str
    trend: Trend | None = None
    """Of its times; None without a history."""

    @property
    def rank(self) -> int:
        """What its status is sorted by."""
        return rank(self.result.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All rows of a kind, worst first."""

    kind: str
    """`case` or `build`."""
    device: str
    """What `Row.device` is called: `device` or `architecture`."""
    table: tables.Table
    rows: tuple[Row, ...]

    @property
    def id(self) -> str:
        """Beginning of the ids of its elements."""
        return f"{self.kind}s"

    @property
    def title(self) -> str:
        """Heading."""
        return self.table.title

    @property
    def places(self) -> dict[str, str]:
        """Addresses of details by name."""
        return {row.result.name: row.place for row in self.rows}

    @property
    def statuses(self) -> list[tuple[str, str]]:
        """What the filter of statuses offers."""
        statuses = Counter(row.result.status for row in self.rows)
        ordered = sorted(statuses.items(), key=lambda pair: rank(pair[0]))
        bad = sum(row.result.failed for row in self.rows)
        options = [("bad", f"failed or error ({bad:,})")] if bad else []
        return options + [(status.value, f"{status.value} ({count:,})") for status, count in ordered]


def choices(rows: Iterable[Row], name: str) -> list[tuple[str, str]]:
    """What a filter of devices or kernels offers."""
    counts = Counter(getattr(row, name) for row in rows)
    return [(value, f"{value} ({count:,})") for value, count in sorted(counts.items())]


def sort_key(number: float) -> str:
    """A number as the script reads it, with all its digits."""
    return repr(number).replace("inf", "Infinity")


_CASES = (
    "error / allowed", "time vs base", "95%", "speed vs torch", "kernel time", "base", "torch", "speed vs torch.compile",
    "share of peak",
)  # fmt: skip


def cases(presented: Presentation, trends: Mapping[tuple[str, str], Trend]) -> Listing:
    """All cases; `trends` are by configuration file and name of case."""
    rows, cells = [], []
    for number, result in enumerate(presented.cases, 1):
        evaluation = result.source
        assert isinstance(evaluation, Evaluation)
        device = evaluation.device_name or evaluation.case.device
        trend = trends.get((evaluation.config, evaluation.case.name))
        own = _own(trend, device_name(evaluation, presented.report))
        kernel = evaluation.case.kernel
        rows.append(Row(result=result, place=f"cases-{number}", kernel=kernel, device=device, trend=own))
        cells.append((evaluation.verdict.reason.value, device, *tables.figures(evaluation, _CASES)))
    table = tables.table("Cases", ("reason", "device", *_CASES), cells)
    # Of cases that were not timed there are no columns of times.
    columns = (
        replace(column, optional=column.figure and column.name != "error / allowed")
        for column in table.columns
    )
    table = replace(table, columns=tuple(columns))
    return Listing(kind="case", device="device", table=table.shown(), rows=tuple(rows))


def builds(presented: Presentation) -> Listing:
    """All builds."""
    rows, cells = [], []
    for number, result in enumerate(presented.builds, 1):
        build = result.source
        assert isinstance(build, Compilation)
        (row,) = tables.builds([build], each=True).rows
        rows.append(Row(result=result, place=f"builds-{number}", kernel=build.kernel, device=build.arch))
        cells.append((build.verdict.reason.value, build.arch, *row[4:]))
    columns = ("reason", "architecture", *tables.BUILDS[4:])
    table = tables.table("Builds", columns, cells).shown()
    return Listing(kind="build", device="architecture", table=table, rows=tuple(rows))


def _own(trend: Trend | None, model: str) -> Trend | None:
    """A case's trend without what other models of devices took; None if nothing is left."""
    if trend is None or not model:
        return trend
    kept = [segment for segment in trend.segments if segment.hard.parts.get("device") == model]
    told = [replace(one, **changes(before, one)) for before, one in zip([None, *kept], kept, strict=False)]
    return replace(trend, segments=tuple(told)) if told else None
