"""Waits for what others hold or do: said once they have lasted two seconds, and summed up when a run ends.

Whoever polls a lock, awaits a build or pauses between tries does it through a `Wait`. Its messages are log messages of
the package's own logger, so that they go where all others go. They come from the thread that waits, at a tick, and not
from a timer: only the main thread may touch pytest's capture of output.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pytest_cgins.core.logs import ROOT
from pytest_cgins.core.text import counted

SAID_AFTER_S = 2.0
"""Shorter waits are nobody's concern."""
AGAIN_AFTER_S = 30.0
"""Least time between two lines on the same wait: processes that share a device wait at each case."""
MOST_LINES = 8
"""Lines of a summary."""

Why = str | Callable[[], str]

_logger = logging.getLogger(ROOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """What waiting for one thing came to."""

    what: str
    """The thing: `cpu`, `the build of relu/cpp`."""
    why: str
    """Who had it, or what went wrong, when that was last said; "" if it never was or nobody knows."""
    seconds: float
    """Seconds in all; waits of several threads at the same time count once."""
    waits: int
    """How many there were."""


@dataclass(slots=True)
class _Row:
    depth: int = 0
    since: float = 0.0
    said_at: float = float("-inf")
    seconds: float = 0.0
    waits: int = 0
    why: str = ""
    reasons: list[Wait] = field(default_factory=list)


_rows: dict[str, _Row] = {}
_guard = threading.Lock()


class Wait:
    """A wait that begins with the first tick or pause and ends with the `with` block.

    Args:
        what: what is waited for; waits with the same one are added up.
        why: who holds it, looked up only if it is said.
        aside: whether somebody else waits for the same thing if this is not the main thread, as with builds in the
            background: then this wait only tells them why.
    """

    def __init__(self, what: str, why: Why = "", *, aside: bool = False) -> None:
        self._what = what
        self._why = why
        self._aside = aside and threading.current_thread() is not threading.main_thread()
        self._row: _Row | None = None

    def __enter__(self) -> Wait:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def tick(self, why: Why = "", *, shown: bool = False) -> None:
        """Go on waiting; to be called several times a second.

        Args:
            why: what holds it up now, if that has changed.
            shown: whether people see that something is waited for: then it is said only if there is a reason to name.
        """
        self._why = why or self._why
        now = time.monotonic()
        with _guard:
            row = self._row or self._begun(now)
            due = not self._aside and now >= self._due(row)
            reasons = [one._why for one in row.reasons if one._why] if due else []
        if not due or (shown and not reasons):
            return
        reason = reasons[-1] if reasons else ""
        # Outside the lock: it may read files.
        text = _printable(reason if isinstance(reason, str) else reason())
        with _guard:
            if now < self._due(row):  # another thread said it meanwhile
                return
            row.said_at, row.why = now, text
        _logger.warning("waiting for %s%s", self._what, f": {text}" if text else "")

    def sleep(self, seconds: float, why: Why = "") -> None:
        """Pause, and say so in the midst of it if that is when it is due."""
        self.tick(why)
        assert self._row is not None
        left = seconds
        until_due = self._due(self._row) - time.monotonic()
        if 0 < until_due < seconds:
            time.sleep(until_due)
            self.tick(why)
            left -= until_due
        time.sleep(left)

    def end(self) -> None:
        """End the wait: the device is there, or the wait was given up."""
        row, self._row = self._row, None
        if row is None:
            return
        with _guard:
            row.reasons.remove(self)
            if not self._aside:
                row.depth -= 1
                if row.depth == 0:
                    row.seconds += time.monotonic() - row.since

    def _begun(self, now: float) -> _Row:
        row = self._row = _rows.setdefault(self._what, _Row())
        row.reasons.append(self)
        if not self._aside:
            if row.depth == 0:
                row.since = now
                row.waits += 1
            row.depth += 1
        return row

    @staticmethod
    def _due(row: _Row) -> float:
        return max(row.since + SAID_AFTER_S, row.said_at + AGAIN_AFTER_S)


def forget() -> None:
    """Begin a new run: what was waited for until now is no part of it."""
    with _guard:
        _rows.clear()


def waited() -> tuple[Waited, ...]:
    """What this process has waited for since `forget`."""
    now = time.monotonic()
    with _guard:
        return tuple(
            Waited(
                what=what,
                why=row.why,
                seconds=row.seconds + (now - row.since if row.depth else 0.0),
                waits=row.waits,
            )
            for what, row in _rows.items()
            if row.waits
        )


def summary(parts: Iterable[Waited]) -> list[str]:
    """A line for each thing that was waited for, the longest first, over all processes; those of a moment left out."""
    whole: dict[str, Waited] = {}
    for part in parts:
        before = whole.get(part.what)
        whole[part.what] = Waited(
            what=part.what,
            why=(before.why if before else "") or part.why,
            seconds=part.seconds + (before.seconds if before else 0.0),
            waits=part.waits + (before.waits if before else 0),
        )
    listed = sorted(
        (one for one in whole.values() if one.seconds >= SAID_AFTER_S), key=lambda one: -one.seconds
    )
    lines = [_line(one) for one in listed[:MOST_LINES]]
    if more := listed[MOST_LINES:]:
        seconds = sum(one.seconds for one in more)
        lines.append(f"waited {seconds:.0f} s for {counted(len(more), 'more thing')}")
    return lines


def sum_up() -> None:
    """Say what this process has waited for, at the end of a command, and forget it."""
    for line in summary(waited()):
        _logger.warning("%s", line)
    forget()


def _line(one: Waited) -> str:
    times = f" in {counted(one.waits, 'wait')}" if one.waits > 1 else ""
    return f"waited {one.seconds:.0f} s for {one.what}{times}" + (f" ({one.why})" if one.why else "")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _after_fork() -> None:
    """Forget other threads and what they held, in a forked process."""
    global _guard  # noqa: PLW0603
    _guard = threading.Lock()
    _rows.clear()


os.register_at_fork(after_in_child=_after_fork)
