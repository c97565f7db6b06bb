"""The section `cgins` at the end of a pytest run, as text."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_cgins.model import Evaluation, SessionReport, Status
from pytest_cgins.report import summary
from pytest_cgins.report.failure import headline
from pytest_cgins.report.numbers import ratio, speedup, time_ns

SHOWN_LINES = 20
"""Failures and weak cases that are listed one by one, unless `-v` asks for all."""

MINIMUM_WIDTH = 72
"""Columns that the table of kernels takes at least: in fewer, numbers would have to be broken."""
UNLIMITED = 100_000
"""Width at which nothing is folded; tables take only what they need."""

_STYLES = {"pass": "green", "fail": "red", "error": "magenta", "skip": "yellow"}


def render(report: SessionReport, *, width: int, colour: bool, verbosity: int, strict: bool) -> str:
    """The section's text, ending in a newline.

    Args:
        report: what was found; every number shown is one of its own, or a median or extreme of them.
        width: columns of the terminal.
        colour: whether escape codes and drawn lines may be used; logs get neither.
        verbosity: pytest's: below 0 the lists are counts, above 0 each case has a line and no list is cut.
        strict: whether `WEAK` cases and kernels that nothing gates count as failures.
    """
    parts = [_text(_kernels(report, colour=colour), width=max(width, MINIMUM_WIDTH), colour=colour)]
    if verbosity > 0:
        # Names are there to be copied, so this table would rather be too wide than fold them.
        parts.append(_text(_cases(report, colour=colour, strict=strict), width=UNLIMITED, colour=colour))
    lines = _lines(report, verbosity=verbosity, strict=strict)
    parts += [_text(line, width=UNLIMITED, colour=colour) for line in lines]
    return "".join(parts)


def _text(part: Table | Text, *, width: int, colour: bool) -> str:
    out = io.StringIO()
    # Whether there is colour and how wide the terminal is, pytest has settled: the environment is not asked.
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _table(*, colour: bool) -> Table:
    return Table(
        box=box.SIMPLE_HEAD if colour else None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0)
    )


def _kernels(report: SessionReport, *, colour: bool) -> Table:
    table = _table(colour=colour)
    table.add_column("kernel", overflow="fold")
    table.add_column("implementation", overflow="fold")
    table.add_column("cases", justify="right", no_wrap=True)
    table.add_column("status", overflow="fold")
    table.add_column("worst error", justify="right", no_wrap=True)
    table.add_column("speed vs torch", no_wrap=True)
    for row in summary.rows(report.evaluations):
        table.add_row(
            row.kernel,
            f"{row.implementation} ({row.device})",
            str(row.cases),
            _counts(row.statuses),
            "-" if row.share is None else ratio(row.share),
            "-" if row.speed is None else _speed(row.speed),
        )
    return table


def _counts(statuses: tuple[tuple[Status, int], ...]) -> Text:
    parts = [Text(f"{count} {status.value}", style=_style(status)) for status, count in statuses]
    return Text(", ").join(parts)


def _speed(speed: summary.Speed) -> str:
    if speed.cases == 1:
        return speedup(speed.median)
    return f"{speedup(speed.median)} ({ratio(speed.low)}..{ratio(speed.high)})"


def _style(status: Status) -> str:
    return "yellow" if status in (Status.WEAK, Status.INCONCLUSIVE) else _STYLES[status.outcome]


def _cases(report: SessionReport, *, colour: bool, strict: bool) -> Table:
    table = _table(colour=colour)
    table.add_column("case")
    table.add_column("status")
    for heading in ("error", "kernel", "torch", "speed"):
        table.add_column(heading, justify="right")
    for evaluation in report.evaluations:
        status = evaluation.verdict.status
        style = "red" if summary.outcome(evaluation, strict=strict) == "fail" else _style(status)
        share = evaluation.correctness.share if evaluation.correctness is not None else None
        timing = evaluation.measurement
        table.add_row(
            evaluation.case.name,
            Text(status.value, style=style),
            "-" if share is None else ratio(share),
            "-" if timing is None else time_ns(timing.kernel.median_ns_per_call),
            "-" if timing is None else time_ns(timing.torch.median_ns_per_call),
            "-" if timing is None else speedup(timing.speedup_vs_torch),
        )
    return table


def _lines(report: SessionReport, *, verbosity: int, strict: bool) -> Iterator[Text]:
    failed = summary.failures(report.evaluations, strict=strict)
    weak = [] if strict else list(summary.weak(report.evaluations))
    if verbosity >= 0:
        shown = None if verbosity > 0 else SHOWN_LINES
        for evaluation in failed[:shown]:
            yield _failure(evaluation, strict=strict)
        yield from _left_out(len(failed), shown, "failures")
        for evaluation, forgeries in weak[:shown]:
            passed = ", ".join(forgeries) or "a forged answer"
            yield Text(f"WEAK {evaluation.case.name}: {passed} would pass too", style="yellow")
        yield from _left_out(len(weak), shown, "weak cases")
    for one in summary.ungated(report.evaluations):
        cases = f"{one.cases} cases" if one.cases > 1 else "1 case"
        yield Text(
            f"NOT GATED {one.kernel}/{one.implementation}: its contract covers none of its {cases}: {one.message}",
            style="red" if strict else "yellow",
        )
    for reason, count in summary.skips(report.evaluations):
        yield Text(f"SKIPPED {count} cases: {reason}", style="yellow")
    if verbosity >= 0:
        for note, count in summary.notes(report.evaluations):
            yield Text(f"note, {count} cases: {note}")
    again = f"seed {report.seed} (--cgins-seed={report.seed} repeats the fresh inputs)"
    built = summary.build_seconds(report.evaluations)
    builds = f"builds took {time_ns(built * 1e9)}" if built else "nothing had to be built"
    yield Text(again if verbosity < 0 else f"{again}; {builds}")


def _failure(evaluation: Evaluation, *, strict: bool) -> Text:
    status, _, rest = headline(evaluation).partition(" ")
    style = _STYLES[summary.outcome(evaluation, strict=strict)]
    return Text(f"{status} ", style=style) + Text(f"{evaluation.case.name} {rest}")


def _left_out(total: int, shown: int | None, what: str) -> Iterator[Text]:
    if shown is not None and total > shown:
        yield Text(f"... {total - shown} more {what}: -v lists them all")
