"""How far a regeneration is: a line a target, rewritten in place on a terminal; elsewhere a line at each change."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_cgins.core import logs
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.budget import Spent, money
from pytest_cgins.regenerate.model import Result, Target
from pytest_cgins.regenerate.run_status import shown_path
from pytest_cgins.report.escape import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text


Stage = Literal[
    "asking", "checking", "timing", "profiling", "accepting", "asking the helper", "waiting", "done"
]
"""What a target is at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A target came to another stage."""

    target: str
    """Its name."""
    attempt: int
    """1-based."""
    attempts: int
    """How many it may have."""
    stage: Stage
    """What it is at now."""
    detail: str = ""
    """For `done` what became of it, else what became of the attempt before; "" where there is nothing to say."""
    tokens: int = 0
    """Spent so far by the whole run."""
    usd: float | None = None
    """Spent so far by the whole run; None where a price is missing."""


STAGES: dict[Stage, str] = {
    "asking": "asking the generator",
    "checking": "building and checking",
    "timing": "timing beside the best until then",
    "profiling": "profiling",
    "accepting": "accepting on fresh inputs",
    "asking the helper": "asking the helper",
    "waiting": "waiting for an answer",
}
"""As people read them; `done` has words of its own."""

REFRESH_PER_S = 4
_LEAST_NAME_CELLS = 12


@dataclass(frozen=True, slots=True)
class _TargetState:
    """Where a target is, and since when."""

    event: Event
    since_s: float


class Board:
    """What is known of all targets at a moment."""

    def __init__(self) -> None:
        self._states: dict[str, _TargetState] = {}

    def see(self, event: Event, now_s: float) -> bool:
        """Take in an event; whether it changes what is to be read."""
        before = self._states.get(event.target)
        self._states[event.target] = _TargetState(event, now_s)
        return before is None or _key(before.event) != _key(event)

    def lines(self, width: int, height: int, now_s: float, spent: Spent | None) -> list[str]:
        """The lines of a terminal, targets that are done only counted; no wider and not more than fit."""
        all_of_them = list(self._states.values())
        running = [one for one in all_of_them if one.event.stage != "done"]
        names = max((_cells(visible(one.event.target)) for one in running), default=0)
        names = min(names, max(_LEAST_NAME_CELLS, width // 3))
        most = max(1, height - 2)
        shown = running if len(running) <= most else running[: most - 1]
        lines = [_line(one, names, now_s) for one in shown]
        if len(shown) < len(running):
            lines.append(f"and {len(running) - len(shown)} more")
        done = len(all_of_them) - len(running)
        lines.append(
            f"cgins: {done} of {counted(len(all_of_them), 'kernel')} done"
            + (f", {spent.words()}" if spent else "")
        )
        return [fitted(line, width) for line in lines]


def plain(event: Event) -> str:
    """An event in one line, for a log."""
    name = visible(event.target)
    if event.stage == "done":
        return f"cgins: {name}: {ended(event)}"
    return (
        f"cgins: {name}: attempt {event.attempt} of {event.attempts}: {STAGES[event.stage]}{_detail(event)}"
    )


def ended(event: Event) -> str:
    """What became of a target: `accepted after 2 of 5 attempts`."""
    became = visible(event.detail) or "done"
    if event.attempt < 1:
        return f"{became} before the first attempt"
    return f"{became} after {event.attempt} of {counted(event.attempts, 'attempt')}"


def fitted(text: str, width: int) -> str:
    """The text, cut to so many cells of a terminal; what is cut has … for its end."""
    from rich.cells import set_cell_size

    if _cells(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


class Progress:
    """Shows events while a run goes on: `with Progress(console) as shown: …on_event=shown…`.

    Args:
        console: where to; whether it is a terminal decides how.
        spent: tells what the run has taken; None where nobody knows.
        clock: seconds since any moment.
    """

    def __init__(
        self,
        console: Console,
        *,
        spent: Callable[[], Spent | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._spent = spent
        self._clock = clock
        self._board = Board()
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._messages = ExitStack()

    def __enter__(self) -> Progress:
        self._messages.enter_context(logs.written_above(self._print))
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                get_renderable=self._drawn,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.close()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            changed = self._board.see(event, self._clock())
        if changed and (self._live is None or event.stage == "done"):
            self._print(plain(event))

    def _print(self, line: str) -> None:
        # A path that is broken into lines cannot be copied.
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def _drawn(self) -> Text:
        from rich.text import Text

        size = self._console.size
        with self._lock:
            # One cell less: some terminals begin a new line once the last one is written to.
            lines = self._board.lines(size.width - 1, size.height, self._clock(), self._spent())
        return Text("\n".join(lines), no_wrap=True)


def _key(event: Event) -> tuple[object, ...]:
    return event.attempt, event.stage, event.detail


def _line(one: _TargetState, names: int, now_s: float) -> str:
    event, name = one.event, fitted(visible(one.event.target), names)
    name += " " * (names - _cells(name))
    stage = f"{STAGES[event.stage]} {_duration(now_s - one.since_s)}{_detail(event)}"
    return f"{name}  {event.attempt} of {event.attempts}  {stage}"


def _detail(event: Event) -> str:
    return f" ({visible(event.detail)})" if event.detail else ""


def _duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02}"


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


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
