"""Locked files: the operating system unlocks them when their holder dies, however that comes.

Some file systems of clusters have no such locks, and say so by several errors. A library that waits there, or takes
a file's existence for a lock, would stop builds for ever after one builder was killed. Here nobody is excluded
then: a kernel may be built twice at once, and one of the two builds is kept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

POLL_S = 0.01
HELD = (errno.EACCES, errno.EAGAIN)


def try_lock(path: Path) -> int | None:
    """A descriptor that holds a file's lock, for `release`; None if another holds it.

    Raises:
        OSError: the file system has no locks, or the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in HELD:
            return None
        raise
    return descriptor


def acquire(path: Path, timeout_s: float) -> int | None:
    """As `try_lock`, again and again for `timeout_s`; where there are no locks, a descriptor that locks nothing.

    Raises:
        OSError: the file cannot be made.
    """
    end = time.monotonic() + timeout_s
    while True:
        try:
            descriptor = try_lock(path)
        except OSError:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if descriptor is not None:
            with suppress(OSError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            os.close(descriptor)  # removed meanwhile: others would lock another file of the same name
        elif time.monotonic() >= end:
            return None
        else:
            time.sleep(POLL_S)


def release(descriptor: int) -> None:
    """Unlock, for copies of the descriptor in forked processes too, and close."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
