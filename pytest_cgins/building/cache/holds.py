"""What a process was given from the cache stays there until it ends: shared locks on records."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from pytest_cgins.core import locks

MOST_HELD = 256
USE_GRAIN_S = 3600.0
"""A last use is written down at most this often: a hit shall not cost a write."""

_lock = threading.Lock()
_held: OrderedDict[str, tuple[int, int]] = OrderedDict()  # path → (descriptor, inode)


def hold(path: Path) -> bytes | None:
    """Content of an entry's record, locked against eviction until this process ends.

    Returns:
        None if it is not there, or is just being evicted.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    locked, content = True, None
    with suppress(OSError):  # a file system without locks: then only its last use protects it
        locked = locks.flock(descriptor, shared=True)
    opened = os.fstat(descriptor)
    if locked and locks.is_of(descriptor, path):
        with suppress(OSError):
            content = os.pread(descriptor, opened.st_size, 0)
    if content is None:
        os.close(descriptor)
        return None
    if time.time() - opened.st_mtime > USE_GRAIN_S:
        with suppress(OSError):  # a cache may be read-only
            os.utime(path)
    _keep(str(path), descriptor, opened.st_ino)
    return content


def _keep(path: str, descriptor: int, inode: int) -> None:
    with _lock:
        before = _held.pop(path, None)
        if before is not None and before[1] == inode:
            os.close(descriptor)
            descriptor = before[0]
        elif before is not None:
            os.close(before[0])
        _held[path] = (descriptor, inode)
        while len(_held) > MOST_HELD:
            os.close(_held.popitem(last=False)[1][0])


def try_exclusive(path: Path) -> int | None:
    """A descriptor with the exclusive lock of a record, which nobody can hold until it is closed.

    Returns:
        None if a living process holds the record, or it is gone.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        if locks.flock(descriptor):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
