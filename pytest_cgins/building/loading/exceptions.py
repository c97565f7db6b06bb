"""What a kernel raised, in words: its exception's own code makes them, so they are bounded in time and in length."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pytest_cgins.core.text import counted

T = TypeVar("T")

MAXIMUM_TEXT = 64 * 1024
LIMIT_S = 10.0
"""For the text of an exception. Code that is not done by then runs on, so its process must not be used again."""

_name = type.__dict__["__name__"].__get__
_plain = str.__str__
_stuck: list[str] = []


def is_stuck() -> bool:
    """Whether the code of an exception still runs in this process, which must not be used again."""
    return bool(_stuck)


def kind_of(error: BaseException) -> str:
    """The name of an exception's class."""
    return printable(_plain(_name(type(error)))[:200])


def told(error: BaseException) -> str:
    """`str(error)`, cut, or why there is none."""
    return bounded(lambda: cut(str(error)), lambda why: f"(its text could not be made: {why})")


def bounded(make: Callable[[], T], otherwise: Callable[[str], T], *, limit_s: float | None = None) -> T:
    """What `make` gives, which runs code of a kernel's exception, or what is said in its place.

    Args:
        make: runs in a thread of its own.
        otherwise: takes what `make` raised, or that it took too long. Once something did, nothing is tried again.
        limit_s: by default `LIMIT_S`.
    """
    limit_s = LIMIT_S if limit_s is None else limit_s
    made: list[T] = []
    failed: list[str] = []

    def run() -> None:
        try:
            made.append(make())
        except BaseException as worse:  # noqa: BLE001 - whatever an exception's class does
            failed.append(kind_of(worse))

    if not _stuck:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            _stuck.append(f"it took more than {limit_s:g} s")
    return made[0] if made else otherwise((failed or _stuck)[0])


def cut(text: str) -> str:
    """The beginning of a text, and how much was left out."""
    text = _plain(text) if issubclass(type(text), str) else ""  # of a class of the kernel's, perhaps
    left_out = len(text) - MAXIMUM_TEXT
    return printable(
        text if left_out <= 0 else f"{text[:MAXIMUM_TEXT]} ... ({counted(left_out, 'more character')})"
    )


def printable(text: str) -> str:
    """Without lone surrogates, which no report could be written with."""
    return text.encode(errors="replace").decode()
