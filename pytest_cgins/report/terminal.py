"""The section `cgins` at the end of a pytest run, as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rich.table import Table as RichTable
from rich.text import Text

from pytest_cgins.core.number_text import time_ns
from pytest_cgins.core.session_report import Compilation, Evaluation, SessionReport
from pytest_cgins.core.text import UNLIMITED, counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import compiled, console, summary, tables, times
from pytest_cgins.report.escape import visible
from pytest_cgins.report.notices import Notice
from pytest_cgins.report.presentation import Presentation, present
from pytest_cgins.report.results import Cause

SHOWN_LINES = 20
"""Causes of failures and weak cases that are listed one by one, unless `-v` asks for all."""
SHOWN_NAMES = 10
"""Missing cases that are listed one by one, unless `-v` asks for all."""


def render(report: SessionReport, *, width: int, colour: bool, verbosity: int) -> str:
    """The section's text, ending in a newline; "" if there is nothing to say.

    Args:
        report: what was found; every number shown is one of its own, or a median or extreme of them.
        width: columns of the terminal; `text.UNLIMITED` where there is none.
        colour: whether escape codes and drawn lines may be used; logs get neither.
        verbosity: pytest's: below 0 the lists are counts, above 0 each case has a line and no list is cut.
    """
    presented = present(report)
    weaker = [notice for notice in presented.notices if notice.mark == "WEAKER"]
    others = [notice for notice in presented.notices if notice.mark != "WEAKER"]
    # All the rest was judged by those settings.
    parts: list[RichTable | Text] = [*_notices(weaker, verbosity=verbosity)]
    if presented.sentence and verbosity >= 0:
        parts.append(Text(presented.sentence))
    if report.compilations:
        parts.append(build_table(report.compilations, colour=colour, each=verbosity > 0))
        parts += [*_causes(presented.build_causes, verbosity=verbosity)] if verbosity >= 0 else []
        parts += build_lines(report.compilations, brief=verbosity < 0)
    elif report.evaluations:
        parts.append(_drawn(presented.kernels, width=width, colour=colour))
        if verbosity > 0:
            # Names are there to be copied, so this table would rather be too wide than fold them.
            parts.append(_drawn(_case_table(report), width=UNLIMITED, colour=colour))
        parts += _lists(presented, verbosity=verbosity) if verbosity >= 0 else []
        parts += _notices(others, verbosity=verbosity)
        parts += _counts(report, verbosity=verbosity)
    else:
        parts += _notices(others, verbosity=verbosity)
    return "".join(console.text(part, colour=colour) for part in parts)


# ---- tables

_BROKEN_HEADINGS = {
    "worst error / allowed": ("worst", " error"),
    "time vs base (>1 slower)": ("time", " vs base", " (>1 slower)"),
    "speed vs torch (>1 faster)": ("speed", " vs torch", " (>1 faster)"),
    "speed vs torch.compile (>1 faster)": ("speed", " vs compile", " (>1 faster)"),
    "share of peak": ("of", " peak"),
}
"""Headings that are shorter here, in pieces between which a narrow column breaks them."""
_LEFT = (
    "status", "time vs base (>1 slower)", "speed vs torch (>1 faster)", "speed vs torch.compile (>1 faster)",
)  # fmt: skip
"""Columns whose cells have an end in brackets."""
_STATUS = re.compile(rf"(?:\d+ )?\b({'|'.join(status.value for status in Status)})\b")


@dataclass(slots=True)
class _Column:
    """Cells that break at known places only: nobody should meet half a word or half a number."""

    name: str
    """Of the table's column."""
    heading: tuple[str, ...]
    """Its parts, between which it can be broken."""
    right: bool
    """Whether the column is flush right."""
    cells: list[tuple[str, ...]] = field(default_factory=list)
    """Parts of each cell."""
    high: bool = False
    """Whether each part of the heading has a line of its own."""
    narrow: bool = False
    """Whether each part of a cell has one, too."""

    def title(self) -> str:
        """The heading, on one line or several."""
        return _joined(self.heading, lines=self.high or self.narrow)

    def text(self, parts: tuple[str, ...]) -> str:
        """A cell, on one line or several."""
        return _joined(parts, lines=self.narrow)

    @property
    def width(self) -> int:
        """What the longest line takes."""
        texts = (self.title(), *map(self.text, self.cells))
        return max(len(line) for text in texts for line in text.split("\n"))


def _joined(parts: tuple[str, ...], *, lines: bool) -> str:
    return "\n".join(part.strip() for part in parts) if lines else "".join(parts)


def _drawn(table: tables.Table, *, width: int, colour: bool) -> RichTable:
    columns = [
        _Column(
            name=column.name,
            heading=_BROKEN_HEADINGS.get(column.name, (column.name,)),
            right=column.figure and column.name not in _LEFT,
            cells=[_parts(row[index]) for row in table.rows],
        )
        for index, column in enumerate(table.columns)
    ]
    _fit(columns, width)
    drawn = console.table(colour=colour)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        drawn.add_column(column.title(), justify=justify, no_wrap=True)
    for index in range(len(table.rows)):
        texts = [Text(column.text(column.cells[index])) for column in columns]
        for column, text in zip(columns, texts, strict=True):
            for status in _STATUS.finditer(text.plain) if column.name == "status" else ():
                text.stylize(console.style(Status(status[1])), *status.span())
        drawn.add_row(*texts)
    return drawn


def _parts(cell: tables.Cell) -> tuple[str, ...]:
    """Pieces of a cell, on one line each: a name that had lines would look like lines of ours."""
    if cell.text == tables.NOTHING:
        return ("-",)
    cell = replace(cell, text=visible(cell.text), more=visible(cell.more))
    if cell.more:
        return cell.text.removesuffix(cell.more), cell.more
    *counts, last = cell.text.split(", ")
    return (*(f"{count}, " for count in counts), last)


def _fit(columns: list[_Column], width: int) -> None:
    """Break headings, then as few columns as will do; names come last, those of kernels at the end, after a `_` or `-`.

    In a terminal too narrow for the numbers the table is wider than the terminal.
    """
    by_name = {column.name: column for column in columns}
    names = [by_name[name] for name in ("implementation", "kernel") if name in by_name]
    figures = [by_name[name] for name in ("status", *_BROKEN_HEADINGS) if name in by_name]
    for column in figures:
        column.high = column.high or _left(columns, width) < 0
    for column in (*figures, *names[:1]):
        if _left(columns, width) >= 0:
            return
        column.narrow = True
    for column in names:
        if (missing := _left(columns, width)) < 0:
            room = max(len(column.heading[0]), column.width + missing)
            column.cells = [(*_broken(name, room), *rest) for name, *rest in column.cells]
            column.narrow = True


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


_CASES = (
    "error / allowed", "kernel time", "base", "torch", "time vs base", "speed vs torch", "share of peak",
)  # fmt: skip
_SHORT = {
    "error / allowed": "error",
    "time vs base (>1 slower)": "vs base (>1 slower)",
    "speed vs torch (>1 faster)": "speed (>1 faster)",
    "share of peak": "of peak",
}


def _case_table(report: SessionReport) -> tables.Table:
    rows = [
        (evaluation.label, evaluation.verdict.status.value, *tables.figures(evaluation, _CASES))
        for evaluation in report.evaluations
    ]
    table = tables.table("Cases", ("case", "status", *_CASES), rows).shown()
    short = (replace(column, name=_SHORT.get(column.name, column.name)) for column in table.columns)
    return replace(table, columns=tuple(short))


def build_table(compilations: Iterable[Compilation], *, colour: bool, each: bool) -> RichTable:
    """Implementations, or builds, with the most that a function of theirs takes; the base's in brackets."""
    return _drawn(tables.builds(compilations, each=each), width=UNLIMITED, colour=colour)


def opcode_table(compilations: Iterable[Compilation], *, colour: bool) -> RichTable:
    """Each function with what it takes and its most frequent opcodes."""
    rows = []
    for compilation in compilations:
        for function in compilation.resources:
            mix = [f"{opcode} {number}" for opcode, number in function.instructions or ()]
            figures = compiled.function_figures(function)
            rows.append(
                (
                    compilation.name,
                    *map(tables.count, figures),
                    ", ".join(mix[: compiled.SHOWN_OPCODES]) or "-",
                    function.function,
                )
            )
    headings = ("build", *(name for name, _ in compiled.FIGURES), "opcodes", "function")
    return _drawn(tables.table("Functions", headings, rows), width=UNLIMITED, colour=colour)


# ---- lines


def _lists(presented: Presentation, *, verbosity: int) -> Iterator[Text]:
    """Failures by cause, weak cases, and times that are open."""
    report, shown = presented.report, None if verbosity > 0 else SHOWN_LINES
    yield from _causes(presented.causes, verbosity=verbosity)
    for common in presented.common_traits:
        of = f"{common.kernel}/{common.implementation} ({common.device})"
        yield Text(f"IN COMMON {of}: {visible(common.text)}")
    weak = [] if report.strict else list(summary.weak(report.evaluations))
    for evaluation, forgeries in weak[:shown]:
        passed = ", ".join(forgeries) or "a forged answer"
        yield Text(f"WEAK {evaluation.label}: {passed} would pass too", style="yellow")
    yield from _left_out(len(weak), shown, "more weak case")
    for more, lines in _times(report):
        yield from lines[:shown]
        yield from _left_out(len(lines), shown, *more)


def _causes(found: Sequence[Cause], *, verbosity: int) -> Iterator[Text]:
    """The worst failure of each cause and a line for the others; -v lists each."""
    shown = None if verbosity > 0 else SHOWN_LINES
    for cause in found[:shown]:
        for failed in cause.failures if verbosity > 0 else (cause.first,):
            status, _, rest = failed.headline.partition(" ")
            # The tables of the terminal name no `cgins.yaml`.
            said = Text(f"{summary.label(failed.source)} {rest}")
            yield Text(f"{status} ", style=console.OUTCOME_STYLES[failed.outcome]) + said
        if cause.rest and verbosity == 0:
            yield Text(f"  {cause.likewise}: -v lists {'it' if len(cause.rest) == 1 else 'them all'}")
    yield from _left_out(len(found), shown, "more cause of failures", "more causes of failures")


def _times(report: SessionReport) -> Iterator[tuple[tuple[str, str], list[Text]]]:
    """How one more and several more of a kind are called, and a line of each: let pass, undecided, probably slower."""

    def line(evaluation: Evaluation, word: str, style: str) -> Text:
        reason, _, said = tables.said(evaluation).partition(": ")
        return Text(f"{word} ", style=style) + Text(f"{evaluation.label} ({reason}): {said}")

    passed = [
        line(one, "slower, passes because of gate.fail_on", "red")
        for one in times.let_pass(report.evaluations)
    ]
    yield ("more slower case that passed", "more slower cases that passed"), passed
    # Those that fail are listed with the failures.
    undecided = [
        line(one, one.verdict.status.value, "yellow")
        for one in times.undecided(report.evaluations)
        if summary.outcome(one, strict=report.strict) == "pass"
    ]
    yield ("more undecided case", "more undecided cases"), undecided
    likely = []
    for one in times.probably_slower(report.evaluations):
        test = times.comparison(one)
        assert test is not None
        said = f"{one.label}: {interval(test)} the base's time in {counted(len(test.log_ratios), 'block')}"
        likely.append(Text("PROBABLY SLOWER ", style="yellow") + Text(said))
    yield ("more case that is probably slower", "more cases that are probably slower"), likely
    yield ("", ""), [Text(times.LIKELY)] if likely else []


def _notices(found: Iterable[Notice], *, verbosity: int) -> Iterator[Text]:
    for one in found:
        if one.quiet and verbosity <= 0:
            continue
        yield Text(f"{one.mark} {one.text}".strip(), style=one.style)
        if verbosity < 0 and one.mark != "WEAKER":
            continue
        shown = None if verbosity > 0 or one.mark == "WEAKER" else SHOWN_NAMES
        yield from (Text(f"  {name}") for name in one.items[:shown])
        if shown is not None and len(one.items) > shown:
            yield Text(f"  ... {len(one.items) - shown} more: -v lists them all")


def _counts(report: SessionReport, *, verbosity: int) -> Iterator[Text]:
    """What was left out, what a reader must know, and how to see it all again."""
    for reason, count in summary.skips(report.evaluations):
        yield Text(f"SKIPPED {counted(count, 'case')}: {reason}", style="yellow")
    if verbosity >= 0:
        for excuse in summary.excused(report.evaluations):
            cases = counted(excuse.cases, "case")
            said = f"EXCUSED {excuse.kernel} from the probe {excuse.probe}, {cases}: {excuse.reason}"
            yield Text(said, style="yellow")
        for note, count in summary.notes(report.evaluations):
            yield Text(f"note, {counted(count, 'case')}: {note}")
    if verbosity > 0:
        for why, count in summary.probes_not_run(report.evaluations):
            yield Text(f"probe not run, {counted(count, 'case')}: {why}")
    again = _seeds(report)
    failed = any(one.verdict.status is Status.BUILD_ERROR for one in report.evaluations)
    built = _built(summary.build_seconds(report.evaluations), failed=failed)
    yield Text(again if verbosity < 0 else f"{again}; {built}")


def _seeds(report: SessionReport) -> str:
    seeds = list(dict.fromkeys(one.seed for one in report.merged))
    if len(seeds) < 2:
        return f"seed {report.seed} (--cgins-seed={report.seed} repeats the fresh inputs)"
    return f"seeds {', '.join(map(str, seeds))} of {counted(len(report.merged), 'run')}"


def _built(seconds: float, *, failed: bool = False) -> str:
    if seconds:
        return f"builds took {time_ns(seconds * 1e9)} in total, in parallel"
    return f"nothing {'else ' if failed else ''}had to be built"


def build_lines(compilations: Sequence[Compilation], *, brief: bool = False) -> Iterator[Text]:
    """What was not compared or built, notes unless it is to be `brief`, and what building took."""
    for status in (Status.PASSED, Status.NEW, Status.SKIPPED):
        for reason, count in compiled.reasons(compilations, status):
            yield Text(f"{status.value} {counted(count, 'build')}: {reason}", style=console.style(status))
    for note, count in compiled.notes(compilations) if not brief else ():
        yield Text(f"note, {counted(count, 'build')}: {note}")
    built = _built(sum(compilation.build_seconds for compilation in compilations))
    compared = ", ".join(commit[:10] for commit in compiled.revisions(compilations))
    yield Text(f"compared with {compared}; {built}" if compared else built)


def _left_out(total: int, shown: int | None, *more: str) -> Iterator[Text]:
    if shown is not None and total > shown:
        left_out = counted(total - shown, *more)
        yield Text(f"... {left_out}: -v lists {'it' if total - shown == 1 else 'them all'}")
