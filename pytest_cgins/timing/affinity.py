"""Chooses the CPUs that a timed process runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


@contextmanager
def narrowed(threads: int) -> Iterator[tuple[int, ...]]:
    """Keep all threads of this process on as many CPUs as its work has threads, so that none wanders while it is timed.

    They are the last ones that the process may use: the first serves most interrupts. With as many threads as CPUs
    nothing is changed.
    """
    threads_before = _of_threads()
    before = os.sched_getaffinity(0)
    chosen = set(sorted(before)[-max(1, threads) :])
    if chosen == before:
        yield tuple(sorted(before))
        return
    _set(dict.fromkeys(_threads(), chosen))
    try:
        yield tuple(sorted(chosen))
    finally:
        # Those that began meanwhile have what their parents had.
        _set(dict.fromkeys(_threads(), before) | threads_before)


def _threads() -> list[int]:
    """All of this process: pools that were started before do not follow the first one."""
    return [int(task.name) for task in _TASKS.iterdir()]


def _of_threads() -> dict[int, set[int]]:
    found = {}
    for thread in _threads():
        with suppress(OSError):
            found[thread] = os.sched_getaffinity(thread)
    return found


def _set(cpus: dict[int, set[int]]) -> None:
    for thread, chosen in cpus.items():
        with suppress(OSError):  # it has ended, or is not ours to move
            os.sched_setaffinity(thread, chosen)
