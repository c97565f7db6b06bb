"""The end of a regeneration: a table of what became of each target, and where its sources are."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.regenerate.model import Result, Target
from pytest_cgins.regenerate.run_status import shown_path
from pytest_cgins.regenerate.spending import Spent, money
from pytest_cgins.report.escape import visible

LEAST_WIDTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One target."""

    target: str
    """Its name."""
    outcome: str
    """`accepted`, `failed`, `waiting` or `stopped`."""
    attempts: int
    """How many were made."""
    tokens: int
    """Of all that was asked for it."""
    usd: float | None
    """What that cost; None if a price is missing."""
    seconds: float
    """Of its answers and attempts, one after another."""
    why: str = ""
    """Why there is no kernel; "" where there is one."""
    where: str = ""
    """Folder of the proposal, or of the last failed sources; "" where there is neither."""


def rows(results: Iterable[Result], spent: Callable[[Target], Spent], run: Path) -> tuple[Row, ...]:
    """One row a result.

    Args:
        results: of the run.
        spent: what was spent on a target.
        run: folder of the journal.
    """
    return tuple(_row(result, spent(result.target), run) for result in results)


def _row(result: Result, spent: Spent, run: Path) -> Row:
    failed = run / result.target.name / "FAILED"
    where = run / result.proposal if result.proposal else failed if failed.is_dir() else None
    return Row(
        target=result.target.name,
        outcome=result.state,
        attempts=len(result.attempts),
        tokens=spent.tokens,
        usd=None if spent.unpriced else spent.usd,
        seconds=spent.seconds + math.fsum(attempt.seconds for attempt in result.attempts),
        why=" → ".join(filter(None, (result.why, result.remedy))),
        where=shown_path(where) if where else "",
    )


def text(table_rows: Sequence[Row], width: int) -> str:
    """The table, and below it what there is to read of each target; nothing of it is markup.

    The table is no wider than `width`. A reason, with its remedy, and a folder are lines of their own, to be read
    whole and copied.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column("kernel", overflow="fold", min_width=8)
    table.add_column("outcome", no_wrap=True)
    for name in ("attempts", "tokens", "cost", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in table_rows:
        cost = "unknown" if row.usd is None else money(row.usd)
        cells = (
            visible(row.target),
            row.outcome,
            str(row.attempts),
            f"{row.tokens:,}",
            cost,
            _time(row.seconds),
        )
        table.add_row(*map(Text, cells))
    out = io.StringIO()
    wide = max(LEAST_WIDTH, width)
    Console(file=out, width=wide, color_system=None, force_terminal=False, _environ={}).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    for row in table_rows:
        if row.why:
            lines.append(f"{visible(row.target)}: {visible(row.why)}")
        if row.where:
            kind = "proposal" if row.outcome == "accepted" else "last failed source"
            lines.append(f"{visible(row.target)}: {kind} in {visible(row.where)}")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{seconds:.1f} s"
        if seconds < 9.95
        else f"{whole} s"
        if whole < 60
        else f"{whole // 60}:{whole % 60:02} min"
    )
