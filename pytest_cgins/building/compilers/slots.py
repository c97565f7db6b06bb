"""How many compilations a machine runs at once, over all processes and threads: locked files beside the cache.

The operating system frees the slots of a holder that is killed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from pytest_cgins.core import locks
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.text import counted
from pytest_cgins.core.waiting import Wait

POLL_S = 0.02
_urgent = ContextVar("urgent", default=False)


def count() -> int:
    """Slots of this machine: `$MAX_JOBS`, else the cores that this process may use."""
    named = os.environ.get("MAX_JOBS", "")
    return int(named) if named.isdigit() and int(named) > 0 else len(os.sched_getaffinity(0))


def needed(memory_nbytes: int, jobs: int = 1) -> int:
    """Slots that a build takes: one a compiler, and no fewer than its compilers' share of the machine's memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(count(), max(jobs, -(-memory_nbytes * count() // memory)))


def urgent(is_urgent: bool) -> None:
    """Whether this thread's builds need no slot, as long as one would do: somebody is idle until they are done."""
    _urgent.set(is_urgent)


@contextmanager
def hold(folder: Path, name: str, memory_nbytes: int, deadline: float, *, jobs: int = 1) -> Iterator[None]:
    """Hold the slots of one build.

    Args:
        folder: of the cache; one that hosts share has slots for each.
        name: what leads messages.
        memory_nbytes: that its compilers may take at once.
        deadline: time of `time.monotonic()` at which to give up.
        jobs: compilers that it runs side by side.

    Raises:
        InfrastructureError: they were not free in time.
    """
    path = folder / "slots" / (socket.gethostname() or "host")
    path.mkdir(parents=True, exist_ok=True)
    wanted = needed(memory_nbytes, jobs)
    if wanted == 1 and _urgent.get():
        yield
        return
    started = time.monotonic()
    why = f"the machine's {counted(count(), 'build slot is', 'build slots are')} taken by other builds"
    with ExitStack() as held:
        with Wait(f"the build of {name}", why, aside=True) as wait, ExitStack() as turn:
            # One at a time collects, so that two that need several never wait for each other.
            while not _try_lock(path / "turn", turn):
                _wait(wait, name, started, deadline)
            got: set[int] = set()
            while True:
                for index in set(range(count())) - got:
                    if len(got) < wanted and _try_lock(path / str(index), held):
                        got.add(index)
                if len(got) == wanted:
                    break
                _wait(wait, name, started, deadline)
        yield


def _try_lock(path: Path, stack: ExitStack) -> bool:
    descriptor = locks.acquire(path, 0.0)
    if descriptor is None:
        return False
    stack.callback(locks.release, descriptor)
    return True


def _wait(wait: Wait, name: str, started: float, deadline: float) -> None:
    now = time.monotonic()
    if now >= deadline:
        raise InfrastructureError(
            f"{name}: the machine's {counted(count(), 'build slot was', 'build slots were')} taken for {now - started:.0f} s",
            remedy="wait for the other builds, or raise the limit",
        )
    wait.sleep(POLL_S)
