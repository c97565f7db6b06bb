"""Locked files among processes, and file systems without locks."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_cgins.core import locks


def test_one_holds_it_at_a_time(tmp_path: Path) -> None:
    """Another thread waits for as long as it may, and has the lock once it is released."""
    path = tmp_path / "lock"
    held = locks.acquire(path, 0.0)
    assert held is not None
    assert locks.acquire(path, 0.05) is None
    threading.Timer(0.1, locks.release, [held]).start()
    later = locks.acquire(path, 20.0)
    assert later is not None
    locks.release(later)


def test_a_removed_file_is_no_lock(tmp_path: Path) -> None:
    """Who waits while the file is removed does not hold a lock that nobody else can see."""
    path = tmp_path / "lock"
    held = locks.acquire(path, 0.0)
    assert held is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.acquire, path, 20.0)
        path.unlink()
        locks.release(held)
        got = waiting.result()
    assert got is not None
    assert locks.acquire(path, 0.0) is None
    locks.release(got)


def test_a_forked_process_does_not_keep_it(tmp_path: Path) -> None:
    """What is released here is free, though a process that was forked meanwhile has the descriptor too."""
    path = tmp_path / "lock"
    held = locks.acquire(path, 0.0)
    assert held is not None
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        locks.release(held)
        again = locks.acquire(path, 0.0)
        assert again is not None
        locks.release(again)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
