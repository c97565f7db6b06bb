"""A temporary folder for candidates. That of a process that was killed is removed by the next that wants one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_cgins.core import locks

PREFIX = "cgins-candidates-"
_LOCK = ".lock"


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is removed at the end, below the system's for temporary files."""
    sweep(Path(tempfile.gettempdir()))
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    # It has its name only once it is held: who sweeps never sees one that is free because it is new.
    handle = os.open(made / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        locks.flock(handle)  # it is new: nobody else knows its name
        (made / f"{_LOCK}.new").rename(made / _LOCK)
        yield made
    finally:
        _remove(made)
        os.close(handle)


def sweep(under: Path) -> None:
    """Remove those of this user that nobody holds."""
    for left in under.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if left.lstat().st_uid != os.getuid():
                continue
            handle = os.open(left / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if locks.flock(handle):
                    _remove(left)
            finally:
                os.close(handle)


def _remove(made: Path) -> None:
    """The lock goes last, so that what a kill in the midst of this leaves is found again."""
    for one in made.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        elif one.name != _LOCK:
            one.unlink(missing_ok=True)
    shutil.rmtree(made, ignore_errors=True)
