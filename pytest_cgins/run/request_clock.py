"""What a request takes of a worker, by clocks that nothing in the worker can reach: its parent's and the system's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RequestTime:
    """The time between a request and its answer."""

    wall_ns: int
    """Time by the parent's clock."""
    waited_ns: int
    """For which the worker's first thread, or the parent whom it waits for, could have run and had no processor."""
    own_ns: int
    """CPU time of that thread."""
    others_ns: int
    """CPU time of its other threads, also of those that have ended, and of the processes that it started."""

    @property
    def ns(self) -> int:
        """Without the time that strangers had its processor: what a busy host adds, and a kernel's threads cannot."""
        return max(self.own_ns, self.wall_ns - max(0, self.waited_ns - self.others_ns))


class RequestClock:
    """Reads what the system keeps of a worker; where it does not tell, all is wall time."""

    def __init__(self, pid: int, relatives: Callable[[], Iterable[int]]) -> None:
        """`pid` is the worker's, whose first thread serves; `relatives` gives those of all its processes."""
        self._pid = pid
        self._relatives = relatives

    def start(self) -> Callable[[], RequestTime]:
        """Begin to measure; the end is when what is given is called."""
        before = self._read()
        wall = time.perf_counter_ns()

        def end() -> RequestTime:
            wall_ns = time.perf_counter_ns() - wall
            waited, own, others = (max(0, now - then) for now, then in zip(self._read(), before, strict=True))
            return RequestTime(wall_ns, waited, own, others)

        return end

    def _read(self) -> tuple[int, int, int]:
        """Waiting for a processor; CPU time of the first thread, and of all others."""
        own, waited = _scheduled(f"{self._pid}")
        others = sum(map(_cpu_ns, {self._pid, *self._relatives()})) - own
        return waited + _scheduled("thread-self")[1], own, others


def _scheduled(which: str) -> tuple[int, int]:
    """CPU time of a thread, and how long it could have run and had no processor; zeros where that is not told."""
    with suppress(OSError, ValueError, IndexError):
        own, waited, *_ = map(int, Path(f"/proc/{which}/schedstat").read_text().split())
        return own, waited
    return 0, 0


def inner_pid(pid: int) -> int:
    """The number that a process has in the innermost namespace that it is in; 0 if that is not told."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return 0


def _cpu_ns(pid: int) -> int:
    """CPU time of all threads that a process has had: the clock that clock_getcpuclockid(3) gives."""
    with suppress(OSError):
        return time.clock_gettime_ns((~pid << 3) | 2)
    return 0
