"""The end of a regeneration: a table of what became of each target, and where its sources are."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.regenerate.model import Answer, Request, Result, Usage
from pytest_cgins.regenerate.spent import money
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


def rows(
    results: Iterable[Result],
    answered: Iterable[tuple[Request, Answer]],
    run: Path,
    lost: Iterable[tuple[Request, Usage]] = (),
) -> tuple[Row, ...]:
    """One row a result.

    Args:
        results: of the run.
        answered: all requests of the run whose answers are there.
        run: folder of the journal.
        lost: requests without an answer that took something all the same, and what.
    """
    took: dict[str, list[tuple[Request, Usage]]] = {}
    waited_s: dict[str, float] = {}
    for request, answer in answered:
        name = request.id.partition("/")[0]
        took.setdefault(name, []).append((request, answer.usage))
        waited_s[name] = waited_s.get(name, 0.0) + answer.seconds
    for request, usage in lost:
        took.setdefault(request.id.partition("/")[0], []).append((request, usage))
    return tuple(
        _row(one, took.get(one.target.name, []), waited_s.get(one.target.name, 0.0), run) for one in results
    )


def _row(result: Result, took: Sequence[tuple[Request, Usage]], waited_s: float, run: Path) -> Row:
    failed = run / result.target.name / "FAILED"
    where = run / result.proposal if result.proposal else failed if failed.is_dir() else None
    usages = [usage for _, usage in took]
    # Who has no name is a person or an agent, whom the run does not pay.
    costs = [usage.usd if request.model else usage.usd or 0.0 for request, usage in took]
    known = [usd for usd in costs if usd is not None]
    return Row(
        target=result.target.name,
        outcome=result.state,
        attempts=len(result.attempts),
        tokens=sum(usage.prompt_tokens + usage.answer_tokens for usage in usages),
        usd=math.fsum(known) if len(known) == len(costs) else None,
        seconds=waited_s + math.fsum(one.seconds for one in result.attempts),
        why=" → ".join(filter(None, (result.why, result.remedy))),
        where=_shown(where) if where else "",
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


def _shown(path: Path) -> str:
    """As a person would write it: relative to the current folder if it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
