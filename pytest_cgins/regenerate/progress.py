"""How far a regeneration is: a line a target, rewritten in place on a terminal; elsewhere a line at each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from pytest_cgins.core import logs
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.events import Event, Stage
from pytest_cgins.regenerate.spending import Spent
from pytest_cgins.report.escape import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

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
            f"cgins: {done} of {_kernels(len(all_of_them))} done" + (f", {spent.words()}" if spent else "")
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def _kernels(number: int) -> str:
    return counted(number, "kernel")


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
