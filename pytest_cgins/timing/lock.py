"""One timing at a time on a device, whatever number of processes want it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_cgins.errors import InfrastructureError


@contextmanager
def exclusive(key: str, *, wait_s: float, folder: Path | None = None) -> Iterator[None]:
    """Hold the device's lock. The operating system gives it back if the process dies.

    Args:
        key: as of `environment.device_key`.
        wait_s: how long to wait for another process.
        folder: where lock files lie; by default one a user in the system's temporary folder.

    Raises:
        InfrastructureError: if it was not to be had in time, or the folder is another user's.
    """
    path = (folder or _private_folder()) / f"timing-{key}.lock"
    lock = FileLock(path, timeout=wait_s)
    try:
        lock.acquire()
    except Timeout:
        raise InfrastructureError(
            f"another process has been timing on {key} for {wait_s:g} s ({path} is locked)",
            remedy="wait for it, end it, or time on fewer processes at once",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _private_folder() -> Path:
    """A folder that only this user can write: a lock that others can take could hold a run up for ever."""
    folder = Path(tempfile.gettempdir()) / f"cgins-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise InfrastructureError(
            f"{folder} is not a folder that only this user can write",
            remedy="remove it, or set TMPDIR to another folder",
        )
    return folder
