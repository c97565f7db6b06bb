"""A temporary folder with a lock beside it. That of a process that was killed is removed by the next that wants one."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_cgins.core import locks

PREFIX = "cgins-copies-"
"""What the names of those begin with that are in the system's folder for temporary files."""


@contextmanager
def folder(under: Path | None = None) -> Iterator[Path]:
    """A folder that is removed at the end; by default in the system's for temporary files, for this user alone."""
    sweep(under)
    place, prefix = _place(under)
    place.mkdir(parents=True, exist_ok=True)
    made = place / f"{prefix}{secrets.token_hex(8)}"
    lock = made.with_name(f"{made.name}.lock")
    with locks.holding(lock, math.inf):  # who sweeps may have the new lock for a moment
        try:
            made.mkdir(0o700 if under is None else 0o777)
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
            lock.unlink(missing_ok=True)


def sweep(under: Path | None = None) -> None:
    """Remove folders of this user, and their locks, that no living process holds, as far as the file system can tell."""
    place, prefix = _place(under)
    for name in {path.name.removesuffix(".lock") for path in place.glob(f"{prefix}*")}:
        left, lock = place / name, place / f"{name}.lock"
        with suppress(OSError):
            if any(os.path.lexists(one) and one.lstat().st_uid != os.getuid() for one in (left, lock)):
                continue
            held = locks.try_lock(lock)
            if held is None:
                continue
            if locks.is_of(held, lock):
                shutil.rmtree(left, ignore_errors=True)
                lock.unlink(missing_ok=True)
            locks.release(held)


def _place(under: Path | None) -> tuple[Path, str]:
    return (Path(tempfile.gettempdir()), PREFIX) if under is None else (under, "")
