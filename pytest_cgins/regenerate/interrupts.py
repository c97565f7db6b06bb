"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread is. In a finalizer or a callback of a weak reference, of which
imports have many, it prints the exception and drops it, and a run that waits for an answer would go on waiting.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """Remembers that SIGINT came, beside what Python does about it; only where nobody else handles it."""

    def __init__(self) -> None:
        self._came = False
        self._is_ours = False

    def __enter__(self) -> Interrupts:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._hear)
            self._is_ours = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._is_ours = False

    def check(self) -> None:
        """Nothing, if SIGINT did not come.

        Raises:
            KeyboardInterrupt: it came, and was dropped.
        """
        if self._came:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        signal.default_int_handler(number, frame)
