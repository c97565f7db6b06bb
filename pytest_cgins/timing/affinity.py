"""Which CPUs a timed process runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


@contextmanager
def narrowed(threads: int) -> Iterator[tuple[int, ...]]:
    """Keep all threads of this process on as many CPUs as it uses, so that none wanders while it is timed.

    They are the last ones that the process may use: the first serves most interrupts. With as many threads as CPUs
    nothing is changed.

    Args:
        threads: that the work is spread over.

    Yields:
        The CPUs; () where the system does not tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield ()
        return
    before = os.sched_getaffinity(0)
    chosen = set(sorted(before)[-max(1, threads) :])
    if chosen == before:
        yield tuple(sorted(before))
        return
    _set(chosen)
    try:
        yield tuple(sorted(chosen))
    finally:
        _set(before)


def _set(cpus: set[int]) -> None:
    """Of every thread: pools that were started before do not follow the first one."""
    for task in _TASKS.iterdir() if _TASKS.is_dir() else ():
        with suppress(OSError):  # it has ended, or is not ours to move
            os.sched_setaffinity(int(task.name), cpus)
