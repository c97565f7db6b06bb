"""Locked files: the operating system unlocks them when their holder dies, however that comes.

By hand rather than by filelock: locks are shared too, are kept in descriptors, and who waits is told for whom. Some file
systems of clusters have no such locks, and say so by several errors; a file's existence is no lock, which would stop
builds for ever after one builder was killed. `acquire` excludes nobody there: a kernel may be built twice at once, and
one of the two builds is kept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_cgins.core.waiting import Wait

POLL_S = 0.01
HELD = (errno.EACCES, errno.EAGAIN)


def flock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, and say whether nobody else holds it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            return False
        raise
    return True


def flock_within(descriptor: int, timeout_s: float, name: str) -> bool:
    """Lock an open file, waiting for another process that has it; `name` is what people are told of.

    Raises:
        OSError: the file system has no locks.
    """
    end = time.monotonic() + timeout_s
    with Wait(name, "another process has locked it") as wait:
        while not flock(descriptor):
            if time.monotonic() > end:
                return False
            wait.sleep(POLL_S)
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds a file by an exclusive lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two who look do not take each other for one who works.
        return not flock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """A descriptor that holds a file's lock, for `release`; None if another holds it.

    Raises:
        OSError: the file system has no locks, or the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        locked = flock(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    if not locked:
        os.close(descriptor)
    return descriptor if locked else None


def acquire(path: Path, timeout_s: float, what: str = "") -> int | None:
    """Call `try_lock` repeatedly for `timeout_s`; where there are no locks, a descriptor that locks nothing.

    People who wait meanwhile are told `what` for, by default the file.

    Raises:
        OSError: the file cannot be made.
    """
    end = time.monotonic() + timeout_s
    with Wait(what or str(path), lambda: f"{_holder(path)} has it", aside=True) as wait:
        while True:
            try:
                descriptor = try_lock(path)
            except OSError:
                return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            if descriptor is not None:
                if is_of(descriptor, path):
                    _sign(descriptor)
                    return descriptor
                os.close(descriptor)
            elif time.monotonic() >= end:
                return None
            else:
                wait.sleep(POLL_S)


@contextmanager
def holding(path: Path, timeout_s: float, what: str = "") -> Iterator[bool]:
    """Hold a file meanwhile, as `acquire` does; False where another has had it for `timeout_s`."""
    descriptor = acquire(path, timeout_s, what)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            release(descriptor)


def _sign(descriptor: int) -> None:
    """Write down who holds a file, for those who wait. Nothing depends on it: on a full disk nobody is named."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} of {socket.gethostname()}".encode(), 0)


def _holder(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")[:200] or "another process"
    return "another process"


def is_of(descriptor: int, path: Path) -> bool:
    """Whether a lock is on the file that has the name now: where it was removed, others lock another one."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except OSError:
        return False


def release(descriptor: int) -> None:
    """Unlock, for copies of the descriptor in forked processes too, and close."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
