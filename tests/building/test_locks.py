"""Locked files among processes, and file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building.build import build
from pytest_cgins.building.cache import locks
from pytest_cgins.building.cache.store import Cache

SOURCE = """// cgins: f(Tensor input) -> Tensor
extern "C" int f(const DLTensor* input, DLTensor* out, cgins_stream) { return 7; }
"""


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


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Kernels are built, by two at once as well, none waits for ever, and nobody's work is removed."""

    def flock(_: int, __: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    project.write("kernel.cpp", SOURCE)
    source = project.source("{op: torch.mul, source: kernel.cpp}")
    cache = tmp_path / "cache"
    with Cache(cache).work_folder() as others:
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(build, source, cache=cache, wait_s=0.0) for _ in range(2)]
            assert len({one.result().library for one in both}) == 1
        assert others.exists()
    assert build(source, cache=cache).cached
