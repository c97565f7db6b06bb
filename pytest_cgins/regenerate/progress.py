"""How far a regeneration is: a line a target, rewritten in place on a terminal; elsewhere a line at each change."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_cgins.core import logs
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import Result
from pytest_cgins.regenerate.budget import Spent, money
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


class Board:
    """What is known of all targets at a moment."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Event, float]] = {}
        """Where each target is, and since when."""

    def see(self, event: Event, now_s: float) -> bool:
        """Take in an event; whether it changes what is to be read."""
        before = self._since.get(event.target)
        self._since[event.target] = event, now_s
        return before is None or before[0] != event

    def lines(self, width: int, height: int, now_s: float) -> list[str]:
        """The lines of a terminal, targets that are done only counted; no wider and not more than fit."""
        running = [(event, since_s) for event, since_s in self._since.values() if event.stage != "done"]
        names = max((_cells(visible(event.target)) for event, _ in running), default=0)
        names = min(names, max(_LEAST_NAME_CELLS, width // 3))
        most = max(1, height - 2)
        shown = running if len(running) <= most else running[: most - 1]
        lines = [_line(event, names, now_s - since_s) for event, since_s in shown]
        if len(shown) < len(running):
            lines.append(f"and {len(running) - len(shown)} more")
        count = len(self._since)
        lines.append(f"cgins: {count - len(running)} of {counted(count, 'kernel')} done")
        return [fitted(line, width) for line in lines]


def plain(event: Event) -> str:
    """An event in one line, for a log."""
    name = visible(event.target)
    if event.stage == "done":
        return f"cgins: {name}: {ended(event)}"
    stage = f"{STAGES[event.stage]}{_detail(event)}"
    return f"cgins: {name}: attempt {event.attempt} of {event.attempts}: {stage}"


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
    """

    def __init__(self, console: Console) -> None:
        self._console = console
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
            changed = self._board.see(event, time.monotonic())
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
            lines = self._board.lines(size.width - 1, size.height, time.monotonic())
        return Text("\n".join(lines), no_wrap=True)


def _line(event: Event, names: int, seconds: float) -> str:
    name = fitted(visible(event.target), names)
    name += " " * (names - _cells(name))
    stage = f"{STAGES[event.stage]} {_duration(seconds)}{_detail(event)}"
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


def table(results: Iterable[tuple[Result, Spent]], run: Path, width: int) -> str:
    """What became of targets, a row each, and below it what there is to read of each; nothing of it is markup.

    The table is no wider than `width`. A reason, with its remedy, and a folder are lines of their own, to be read
    whole and copied.

    Args:
        results: of the run, each with what was spent on it.
        run: folder of the journal.
        width: columns of the terminal.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    rows.add_column("kernel", overflow="fold", min_width=8)
    rows.add_column("outcome", no_wrap=True)
    for name in ("attempts", "tokens", "cost", "time"):
        rows.add_column(name, justify="right", no_wrap=True)
    lines = []
    for result, spent in results:
        name = visible(result.target.name)
        cost = "unknown" if spent.unpriced else money(spent.usd)
        seconds = spent.seconds + math.fsum(attempt.seconds for attempt in result.attempts)
        cells = (name, result.state, str(len(result.attempts)), f"{spent.tokens:,}", cost, _time(seconds))
        rows.add_row(*map(Text, cells))
        if result.why:
            why = " → ".join(filter(None, (result.why, result.remedy)))
            lines.append(f"{name}: {visible(why)}")
        failed = run / result.target.name / "FAILED"
        if result.proposal:
            lines.append(f"{name}: proposal in {visible(shown_path(run / result.proposal))}")
        elif failed.is_dir():
            lines.append(f"{name}: last failed source in {visible(shown_path(failed))}")
    out = io.StringIO()
    wide = max(LEAST_WIDTH, width)
    Console(file=out, width=wide, color_system=None, force_terminal=False, _environ={}).print(rows)
    return "\n".join([*(line.rstrip() for line in out.getvalue().splitlines()), *lines])


def _time(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"
