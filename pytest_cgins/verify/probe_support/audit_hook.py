"""The audit hook of a process that runs kernels: Python tells it what code does, and nobody can take it away.

It sleeps unless someone listens. Native code raises no audit events.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Listener = Callable[[str, tuple[Any, ...], FrameType], None]
"""Takes an event, its arguments and the Python frame that caused it."""


@contextmanager
def listening(listener: Listener, events: Collection[str]) -> Iterator[None]:
    """Have all events of these names told, from any thread. What the listener raises is lost."""
    before = _switch((listener, frozenset(events)))
    try:
        yield
    finally:
        _switch(before)


_Ear = tuple[Listener, frozenset[str]] | None


def _switchable() -> Callable[[_Ear], _Ear]:
    """A function that sets who listens, and tells who did. The first call installs the hook.

    All state is in the closure: a module's attributes are within everyone's reach.
    """
    ear: _Ear = None
    installed = False
    busy: set[int] = set()
    here, frame_at = threading.get_ident, sys._getframe

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if ear is None or event not in ear[1]:
            return
        thread = here()
        if thread in busy:  # what a listener does causes events, too
            return
        busy.add(thread)
        try:
            caller = frame_at(1)
            ear[0](event, arguments, caller)
        except Exception:  # noqa: BLE001, S110 - raising here would change what the kernel does
            pass
        finally:
            busy.discard(thread)

    def switch(new: _Ear) -> _Ear:
        nonlocal ear, installed
        if not installed:
            sys.addaudithook(hook)
            installed = True
        old, ear = ear, new
        return old

    return switch


_switch = _switchable()
