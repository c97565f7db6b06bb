"""A session's report as markdown within a limit of bytes: a job summary, and what it shares with a comment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.report import compiled, summary, tables, times
from pytest_cgins.report.escape import block, code, inline
from pytest_cgins.report.presentation import Presentation, environment, present
from pytest_cgins.report.results import Cause, Result
from pytest_cgins.report.tables import Cell, Table, figures, table

STEP_SUMMARY_LIMIT_NBYTES = 1 << 20
"""GitHub drops a step's summary that is larger."""
LEAST_LIMIT_NBYTES = 1 << 14
"""Room for the heading, the environments and the beginnings of all tables."""
TEXT_LENGTH = 300
MESSAGE_LENGTH = 6000
MESSAGES = 20
"""Causes whose whole message is shown."""
ENVIRONMENTS = 8


def render(report: SessionReport, *, limit_nbytes: int = STEP_SUMMARY_LIMIT_NBYTES) -> str:
    """Totals and kernels, failures by cause, worst first, and times; what does not fit into so many bytes is counted.

    None of the report's texts is trusted.

    Raises:
        ValueError: the limit is below `LEAST_LIMIT_NBYTES`.
    """
    if limit_nbytes < LEAST_LIMIT_NBYTES:
        raise ValueError(
            f"{counted(limit_nbytes, 'byte is', 'bytes are')} fewer than the {LEAST_LIMIT_NBYTES} that a summary needs"
        )
    presented = present(report)
    page = beginning(presented, limit_nbytes)
    page.table(_failures("Failures", presented.causes), share=0.4)
    add_messages(page, presented, presented.causes)
    page.table(_times(report), share=0.6)
    for remark in presented.remarks:
        page.table(remark, share=0.4)
    page.table(rest(presented.causes), share=0.9)
    return page.text()


class LimitedPage:
    """Markdown that grows up to a limit; every section says how much of it was left out."""

    NOTE_NBYTES = 200
    """Room that a section keeps for its closing tags and for saying what was left out."""

    def __init__(self, limit_nbytes: int) -> None:
        self._parts: list[str] = []
        self._left = limit_nbytes

    def add(self, text: str) -> None:
        """Append unconditionally."""
        self._parts.append(text)
        self._left -= len(text.encode())

    def table(self, table: Table, *, share: float) -> None:
        """A table with as many rows as a share of what is left holds; no rows, no table."""
        if not table.rows:
            return
        shown = table.shown()
        is_figure = [column.figure for column in shown.columns]
        rows = [row(*(_cell(*pair) for pair in zip(cells, is_figure, strict=True))) for cells in shown.rows]
        headings = "".join(f"<th>{column.name}</th>" for column in shown.columns)
        head = f"\n### {shown.title}\n\n<table>\n<tr>{headings}</tr>\n"
        end = f"<p>{inline(shown.note)}</p>\n" if shown.note else ""
        self._section(head, rows, f"</table>\n{end}", share, len(rows))

    def elements(self, blocks: Sequence[str], *, total: int, share: float) -> None:
        """HTML elements one below the other: the first ones of `total`."""
        if blocks:
            self._section("\n", blocks, "", share, total)

    def _section(self, head: str, rows: Sequence[str], tail: str, share: float, total: int) -> None:
        end = self._left - int(self._left * share)
        if self._left - len(head.encode()) - self.NOTE_NBYTES < end:
            return
        self.add(head)
        shown = 0
        for line in rows:
            if self._left - len(line.encode()) - self.NOTE_NBYTES < end:
                break
            self.add(line)
            shown += 1
        left_out = total - shown
        self.add(tail + (f"<p>… {left_out} more in the JSON report.</p>\n" if left_out else ""))

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)


def row(*cells: str) -> str:
    """A row of a table; cells are HTML."""
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def _cell(cell: Cell, is_figure: bool) -> str:
    return inline(cell.text) if is_figure or cell == tables.EMPTY else code(cell.text, length=TEXT_LENGTH)


def beginning(presented: Presentation, limit_nbytes: int) -> LimitedPage:
    """What is on the first screen, and builds."""
    page = LimitedPage(limit_nbytes)
    page.add(_heading(presented))
    for notice in presented.notices:
        title = f"<strong>{notice.title}</strong>: " if notice.title else ""
        told = f"<p>{title}{code(notice.text, length=TEXT_LENGTH)}</p>\n"
        names = [f"<p>{code(name, length=TEXT_LENGTH)}</p>\n" for name in notice.items]
        page.elements([told], total=1, share=0.5)
        page.elements(names, total=len(names), share=0.3)
    page.table(presented.kernels, share=0.25)
    if presented.builds:
        page.table(_failures("Failed builds", presented.build_causes), share=0.4)
        add_messages(page, presented, presented.build_causes)
        page.table(tables.builds(presented.report.compilations), share=0.6)
        page.table(rest(presented.build_causes), share=0.3)
    return page


def _heading(presented: Presentation) -> str:
    """Counts, what failures come from, exit code, seed and devices."""
    report = presented.report
    sentence = f"<p>{code(presented.sentence, length=2 * TEXT_LENGTH)}</p>\n" if presented.sentence else ""
    environments = (code(environment(one), length=160) for one in report.environments[:ENVIRONMENTS])
    devices = "".join(f"<br>{one}" for one in environments)
    commits = [code(commit[:10], length=10) for commit in compiled.revisions(report.compilations)]
    compared = f" compared with {', '.join(commits)};" if commits else ""
    seed = "" if report.compilations else _seeds(report)
    version = code(report.cgins, length=40)
    return (
        f"## cgins: {presented.title}\n\n{sentence}<p>Exit code {report.exit_status};{seed}{compared}"
        f" {report.seconds:.1f} s; pytest-cgins {version}{devices}</p>\n"
    )


def _seeds(report: SessionReport) -> str:
    seeds = summary.seeds(report)
    if len(seeds) < 2:
        return f" seed <code>{report.seed}</code> (<code>--cgins-seed={report.seed}</code> repeats the fresh inputs);"
    return f" {counted(len(seeds), 'seed')}, as {counted(len(report.merged), 'run was', 'runs were')} merged;"


def _failures(title: str, causes: Sequence[Cause]) -> Table:
    rows = ((cause.first.name, cause.first.headline, number(cause), cause.first.command) for cause in causes)
    return table(title, ("first", "what", "failures", "again"), rows)


def number(cause: Cause) -> Cell:
    """How many failures a cause has; nothing of a single one."""
    return tables.count(len(cause.failures)) if cause.rest else tables.EMPTY


def rest(causes: Iterable[Cause]) -> Table:
    """The failures of which an example was shown."""
    rest = [failed for cause in causes for failed in cause.rest]
    rows = ((failed.name, failed.headline, failed.command) for failed in rest)
    return table("More failures of the same causes", ("case", "what", "again"), rows)


def add_messages(page: LimitedPage, presented: Presentation, causes: Sequence[Cause]) -> None:
    """What failing cases have in common, and all that is told of the first ones."""
    if causes is presented.causes:
        rows = (
            (one.kernel, f"{one.implementation} ({one.device})", one.text) for one in presented.common_traits
        )
        page.table(
            table("What failing cases have in common", ("kernel", "implementation", "what"), rows), share=0.2
        )
    page.elements([_message(cause.first) for cause in causes[:MESSAGES]], total=len(causes), share=0.6)


def _message(failed: Result) -> str:
    """All that is told of a failure, below its name."""
    heading = code(failed.name, length=TEXT_LENGTH)
    return f"<details><summary>{heading}</summary>{block(failed.message, length=MESSAGE_LENGTH)}</details>\n"


_TIMES = (
    "kernel time", "base", "torch", "time vs base", "95%", "speed vs torch", "quartiles", "speed vs torch.compile",
    "share of peak", "timed by", "cache",
)  # fmt: skip


def _times(report: SessionReport) -> Table:
    """Slowest against the base first, then slowest against torch, so that these are there if not all fit."""

    def order(pair: tuple[Evaluation, Measurement]) -> tuple[float, float]:
        test = times.comparison(pair[0])
        return -(test.ratio if test is not None else 0.0), pair[1].speedup_vs_torch

    name = summary.names(report)
    timed = [
        (evaluation, evaluation.measurement)
        for evaluation in report.evaluations
        if evaluation.measurement is not None
    ]
    rows = ((name(one), *figures(one, _TIMES)) for one, _ in sorted(timed, key=order))
    return table("Times", ("case", *_TIMES), rows)
