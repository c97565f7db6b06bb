"""The section `cgins` at the end of a pytest run, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from pytest_cgins.core.figures import change, percent, ratio, speedup, time_ns
from pytest_cgins.core.model import Evaluation, SessionReport, Status
from pytest_cgins.core.text import counted
from pytest_cgins.report import compiled, console, coverage, in_common, summary, time_lines, times
from pytest_cgins.report.causes import Cause, build_causes, causes, sentence
from pytest_cgins.report.escape import visible
from pytest_cgins.report.failure import headline

SHOWN_LINES = 20
"""Causes of failures and weak cases that are listed one by one, unless `-v` asks for all."""


def render(report: SessionReport, *, width: int, colour: bool, verbosity: int) -> str:
    """The section's text, ending in a newline; "" if there is nothing to say.

    Args:
        report: what was found; every number shown is one of its own, or a median or extreme of them.
        width: columns of the terminal; `text.UNLIMITED` where there is none.
        colour: whether escape codes and drawn lines may be used; logs get neither.
        verbosity: pytest's: below 0 the lists are counts, above 0 each case has a line and no list is cut.
    """
    first = "".join(console.text(line, colour=colour) for line in coverage.weaker_lines(report))
    told = sentence(report) if verbosity >= 0 else ""
    first += console.text(Text(told), colour=colour) if told else ""
    if report.compilations:
        return first + _builds(report, colour=colour, verbosity=verbosity)
    if not report.evaluations:
        found = coverage.lines(report, verbosity=verbosity)
        return first + "".join(console.text(line, colour=colour) for line in found)
    parts = [first, console.text(_kernels(report, width=width, colour=colour), colour=colour)]
    if verbosity > 0:
        # Names are there to be copied, so this table would rather be too wide than fold them.
        parts.append(console.text(_cases(report, colour=colour), colour=colour))
    lines = _lines(report, verbosity=verbosity)
    parts += [console.text(line, colour=colour) for line in lines]
    return "".join(parts)


def _builds(report: SessionReport, *, colour: bool, verbosity: int) -> str:
    table = compiled.table(report.compilations, colour=colour, each=verbosity > 0)
    lines = [
        *_causes(build_causes(report.compilations), strict=report.strict, verbosity=verbosity),
        *compiled.lines(report.compilations, brief=verbosity < 0),
    ]
    parts: tuple[Table | Text, ...] = (table, *lines)
    return "".join(console.text(part, colour=colour) for part in parts)


def _kernels(report: SessionReport, *, width: int, colour: bool) -> Table:
    columns = [_Column(heading, right) for heading, right in _HEADINGS]
    rows = summary.rows(report.evaluations)
    for row in rows:
        cells = (
            (row.kernel,),
            (row.implementation, f" ({row.device})"),
            (str(row.cases),),
            _counts(row.statuses),
            ("-" if row.share is None else ratio(row.share),),
            ("-",) if row.base is None else _base(row.base),
            ("-",) if row.speed is None else _speed(row.speed),
            ("-" if row.peak is None else percent(row.peak),),
        )
        for column, cell in zip(columns, cells, strict=True):
            column.cells.append(cell)
    columns = [
        column
        for index, column in enumerate(columns)
        if index not in _OPTIONAL or any(cell != ("-",) for cell in column.cells)
    ]
    room = _fit(columns, width)
    table = console.table(colour=colour)
    for index, column in enumerate(columns):
        table.add_column(
            column.text(column.heading),
            justify="right" if column.right else "left",
            no_wrap=index != _KERNEL,
            max_width=room if index == _KERNEL else None,
            overflow="fold",
        )
    for index, row in enumerate(rows):
        texts: list[str | Text] = [column.text(column.cells[index]) for column in columns]
        texts[_STATUS] = _styled(row.statuses, str(texts[_STATUS]))
        table.add_row(*texts)
    return table


_HEADINGS = (
    (("kernel",), False),
    (("implementation",), False),
    (("cases",), True),
    (("status",), False),
    (("worst", " error"), True),
    (("time", " vs base"), False),
    (("speed", " vs torch"), False),
    (("of", " peak"), True),
)
_KERNEL, _IMPLEMENTATION, _, _STATUS, _ERROR, _BASE, _, _PEAK = range(len(_HEADINGS))
_OPTIONAL = (_BASE, _PEAK)
"""Columns that are left out where they would be empty."""


@dataclass(slots=True)
class _Column:
    """Cells that break at known places only: nobody should meet half a word or half a number."""

    heading: tuple[str, ...]
    """Its parts, between which it can be broken."""
    right: bool
    """Whether the column is flush right."""
    cells: list[tuple[str, ...]] = field(default_factory=list)
    """Parts of each cell."""
    narrow: bool = False
    """Whether each part has a line of its own."""

    def text(self, parts: tuple[str, ...]) -> str:
        """The parts on one line, or on one each."""
        return "\n".join(part.strip() for part in parts) if self.narrow else "".join(parts)

    @property
    def width(self) -> int:
        """What the longest line takes."""
        return max(len(line) for cell in (self.heading, *self.cells) for line in self.text(cell).split("\n"))


def _fit(columns: list[_Column], width: int) -> int:
    """Break as few columns as will do; names come last, those of kernels at the end, and break after a `_` or `-`.

    Returns:
        What the names of kernels may take. In a terminal too narrow for the numbers that is the width of their
        heading, and the table is wider than the terminal.
    """
    for index in (_STATUS, *range(_ERROR, len(columns)), _IMPLEMENTATION):
        if _left(columns, width) >= 0:
            break
        columns[index].narrow = True
    for index in (_IMPLEMENTATION, _KERNEL):
        names, missing = columns[index], min(0, _left(columns, width))
        room = max(len(names.heading[0]), names.width + missing)
        if missing:
            names.cells = [(*_broken(name, room), *rest) for name, *rest in names.cells]
            names.narrow = True
    return room


def _left(columns: list[_Column], width: int) -> int:
    """Blanks that are over when the table is as wide as its columns; negative where it does not fit."""
    return width - sum(column.width for column in columns) - console.GAP * (len(columns) - 1)


def _broken(name: str, width: int) -> tuple[str, ...]:
    """Pieces of a name, each as long as fits into the width, that end in a `_`, `-` or `.`."""
    lines = [""]
    for piece in re.findall(r"[^_.-]*[_.-]+|[^_.-]+", name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return tuple(lines)


def _counts(statuses: tuple[tuple[Status, int], ...]) -> tuple[str, ...]:
    counts = [f"{count} {status.value}" for status, count in statuses]
    return (*(f"{count}, " for count in counts[:-1]), counts[-1])


def _styled(statuses: tuple[tuple[Status, int], ...], text: str) -> Text:
    styled = Text(text)
    for status, count in statuses:
        styled.highlight_words([f"{count} {status.value}"], console.style(status))
    return styled


def _speed(speed: summary.Speed) -> tuple[str, ...]:
    if speed.cases == 1:
        return (speedup(speed.median),)
    return speedup(speed.median), f" ({ratio(speed.low)}..{ratio(speed.high)})"


def _base(base: times.BaseTimes) -> tuple[str, ...]:
    if base.cases == 1:
        return (change(base.median),)
    return change(base.median), f" (worst {change(base.worst)})"


def _cases(report: SessionReport, *, colour: bool) -> Table:
    rows = [(one, _times(one)) for one in report.evaluations]
    table = console.table(colour=colour)
    table.add_column("case")
    table.add_column("status")
    shown = [
        index
        for index, heading in enumerate(_TIMES)
        if heading not in _OPTIONAL_TIMES or any(cells[index] != "-" for _, cells in rows)
    ]
    for index in shown:
        table.add_column(_TIMES[index], justify="right")
    for evaluation, cells in rows:
        status = evaluation.verdict.status
        failed = summary.outcome(evaluation, strict=report.strict) == "fail"
        style = "red" if failed else console.style(status)
        table.add_row(evaluation.label, Text(status.value, style=style), *(cells[index] for index in shown))
    return table


_TIMES = ("error", "kernel", "base", "torch", "vs base", "speed", "of peak")
_OPTIONAL_TIMES = ("base", "vs base", "of peak")


def _times(evaluation: Evaluation) -> tuple[str, ...]:
    """Cells below `_TIMES`."""
    share = evaluation.correctness.share if evaluation.correctness is not None else None
    timing, test = evaluation.measurement, times.comparison(evaluation)
    peak = times.share_of_peak(timing)
    base = timing.base if timing is not None else None
    return (
        "-" if share is None else ratio(share),
        "-" if timing is None else time_ns(timing.kernel.median_ns_per_call),
        "-" if base is None else time_ns(base.median_ns_per_call),
        "-" if timing is None else time_ns(timing.torch.median_ns_per_call),
        "-" if test is None else change(test.ratio),
        "-" if timing is None else speedup(timing.speedup_vs_torch),
        "-" if peak is None else percent(peak),
    )


def _lines(report: SessionReport, *, verbosity: int) -> Iterator[Text]:
    weak = [] if report.strict else list(summary.weak(report.evaluations))
    if verbosity >= 0:
        shown = None if verbosity > 0 else SHOWN_LINES
        yield from _causes(causes(report), strict=report.strict, verbosity=verbosity)
        yield from _in_common(report)
        for evaluation, forgeries in weak[:shown]:
            passed = ", ".join(forgeries) or "a forged answer"
            yield Text(f"WEAK {evaluation.label}: {passed} would pass too", style="yellow")
        yield from _left_out(len(weak), shown, "more weak case")
        for more, lines in time_lines.lists(report):
            yield from lines[:shown]
            yield from _left_out(len(lines), shown, *more)
    yield from time_lines.totals(report)
    for one in summary.ungated(report.evaluations):
        cases = counted(one.cases, "case")
        yield Text(
            f"NOT GATED {one.kernel}/{one.implementation}: its contract covers none of its {cases}: {one.message}",
            style="red" if report.strict else "yellow",
        )
    yield from coverage.lines(report, verbosity=verbosity)
    for reason, count in summary.skips(report.evaluations):
        yield Text(f"SKIPPED {counted(count, 'case')}: {reason}", style="yellow")
    if verbosity >= 0:
        for excuse in summary.excused(report.evaluations):
            yield Text(
                f"EXCUSED {excuse.kernel} from the probe {excuse.probe}, {counted(excuse.cases, 'case')}: {excuse.reason}",
                style="yellow",
            )
        for note, count in summary.notes(report.evaluations):
            yield Text(f"note, {counted(count, 'case')}: {note}")
    if verbosity > 0:
        for why, count in summary.probes_not_run(report.evaluations):
            yield Text(f"probe not run, {counted(count, 'case')}: {why}")
    again = _seeds(report)
    built = summary.build_seconds(report.evaluations)
    builds = (
        f"builds took {time_ns(built * 1e9)} in all, side by side" if built else "nothing had to be built"
    )
    yield Text(again if verbosity < 0 else f"{again}; {builds}")


def _seeds(report: SessionReport) -> str:
    seeds = list(dict.fromkeys(one.seed for one in report.merged))
    if len(seeds) < 2:
        return f"seed {report.seed} (--cgins-seed={report.seed} repeats the fresh inputs)"
    return f"seeds {', '.join(map(str, seeds))} of {counted(len(report.merged), 'run')}"


def _causes(found: Sequence[Cause[Any]], *, strict: bool, verbosity: int) -> Iterator[Text]:
    """The worst failure of each cause and a line for the others; -v lists each, -q none."""
    shown = None if verbosity > 0 else SHOWN_LINES
    for cause in found[:shown] if verbosity >= 0 else ():
        for failed in cause.failures if verbosity > 0 else (cause.first,):
            status, _, rest = headline(failed).partition(" ")
            style = console.OUTCOME_STYLES[summary.outcome(failed, strict=strict)]
            yield Text(f"{status} ", style=style) + Text(f"{summary.label(failed)} {rest}")
        if cause.rest and verbosity == 0:
            yield Text(f"  {cause.likewise}: -v lists {'it' if len(cause.rest) == 1 else 'them all'}")
    if verbosity >= 0:
        yield from _left_out(len(found), shown, "more cause of failures", "more causes of failures")


def _in_common(report: SessionReport) -> Iterator[Text]:
    for one in in_common.in_common(report):
        yield Text(f"IN COMMON {one.kernel}/{one.implementation} ({one.device}): {visible(one.words)}")


def _left_out(total: int, shown: int | None, *more: str) -> Iterator[Text]:
    if shown is not None and total > shown:
        yield Text(
            f"... {counted(total - shown, *more)}: -v lists {'it' if total - shown == 1 else 'them all'}"
        )
