"""Who may use a device: one process that times, or any number that verify.

Both are flocks on a file a device, which the operating system gives back when their holder dies, however that comes.
Whoever wants one passes a turnstile first, another file that is locked in the same way, and stays in it until the
device is his. So nobody who verifies comes in ahead of one who already waits to time, and a process that gives the
device up and wants it again at once must line up: of all who wait, chance decides who is next.

A process that is forked while a lock is held has no part in it. One that is started has neither.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from pytest_cgins.core import locks
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.waiting import Wait

FOLDER_VARIABLE = "CGINS_LOCK_DIR"
"""Where lock files lie; for containers that share a GPU."""
WAIT_S = 600.0
"""How long a case waits for other processes that use its device; each holds it for a case."""
POLL_S = 0.005
"""About how often a process that waits looks again: often enough for measurements of 20 ms, seldom enough to disturb
none on a CPU."""

_MOST_TOLD = 4
_RECORD_NBYTES = 400

Doing = Literal["timing", "verifying"]


class _Own(threading.local):
    """What this thread holds."""

    def __init__(self) -> None:
        self.doing: dict[Path, Doing] = {}


_own = _Own()
_descriptors: set[int] = set()
_random = random.Random()  # noqa: S311 (tests seed the shared one, all in the same way)


@contextmanager
def timing(key: str, *, wait_s: float, folder: Path | None = None) -> Iterator[None]:
    """Hold a device, by its `lock_key`, alone: nobody else times or verifies on it.

    Within this, the same thread may ask for it again, for either purpose: nothing else runs meanwhile. Lock files lie by
    default in `$CGINS_LOCK_DIR`, else in a folder a user in the system's temporary one.

    Raises:
        InfrastructureError: it was not to be had in time, by whose doing the message says; this thread holds it for
            verifying; or the folder is another user's, not there, or without locks.
    """
    with _held("timing", key, wait_s, folder):
        yield


@contextmanager
def verifying(key: str, *, wait_s: float, folder: Path | None = None) -> Iterator[None]:
    """Hold a device together with all others that verify: nobody times on it. Arguments and errors as of `timing`."""
    with _held("verifying", key, wait_s, folder):
        yield


@contextmanager
def _held(doing: Doing, key: str, wait_s: float, folder: Path | None) -> Iterator[None]:
    place = folder or _default_folder()
    device = place / f"{key}.lock"
    already = _own.doing.get(device)
    if already in (doing, "timing"):
        yield
        return
    if already is not None:
        # Two processes that did so would wait for each other.
        raise InfrastructureError(
            f"this thread is verifying on {key}, and asks to time on it: it would wait for itself",
            remedy="end the verification before the timing begins",
        )
    deadline = time.monotonic() + wait_s
    with ExitStack() as until_done:
        try:
            with (
                Wait(key, lambda: _holders(place, key)) as wait,
                _locked(place / f"{key}.turn", doing, deadline, wait),
            ):
                until_done.enter_context(_locked(device, doing, deadline, wait))
        except TimeoutError:
            raise InfrastructureError(
                f"gave up {doing} on {key} after waiting {wait_s:g} s: {_holders(place, key)}",
                remedy="wait for them, end them, or run fewer processes at once",
            ) from None
        until_done.enter_context(_recorded(place, key, doing))
        _own.doing[device] = doing
        try:
            yield
        finally:
            _own.doing.pop(device, None)


# ---- one locked file


@contextmanager
def _locked(path: Path, doing: Doing, deadline: float, wait: Wait) -> Iterator[None]:
    """Hold a file's lock.

    Raises:
        TimeoutError: not by then.
        InfrastructureError: there cannot be such a lock.
    """
    descriptor = _open(path)
    try:
        while True:
            locked = _try(descriptor, doing, path)
            if locked and locks.is_of(descriptor, path):
                break
            if time.monotonic() >= deadline:
                raise TimeoutError
            if locked:  # removed meanwhile: others lock another file of the same name
                _give_back(descriptor)
                descriptor = _open(path)
            else:
                wait.sleep(POLL_S * _random.uniform(0.5, 1.5))
        yield
    finally:
        _give_back(descriptor)


def _open(path: Path) -> int:
    """Open a file, made if need be; another user's may be one that can be read only, which is enough."""
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InfrastructureError(
            f"{path} cannot be opened: {error.strerror}",
            remedy=f"make its folder writable, or set {FOLDER_VARIABLE} to another one",
        ) from error
    _descriptors.add(descriptor)
    return descriptor


def _try(descriptor: int, doing: Doing, path: Path) -> bool:
    try:
        return locks.flock(descriptor, shared=doing == "verifying")
    except OSError as error:
        raise InfrastructureError(
            f"{path.parent} is on a file system without locks: {error.strerror}",
            remedy=f"set {FOLDER_VARIABLE} to a folder on a local disk",
        ) from error


def _give_back(descriptor: int) -> None:
    """Unlock and close; nothing in a forked process, whose parent still holds it."""
    if descriptor in _descriptors:
        _descriptors.discard(descriptor)
        locks.release(descriptor)


def _after_fork() -> None:
    """Close inherited locks in a forked process: they would keep the device after the holder's death."""
    for descriptor in _descriptors:
        with suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()
    _own.doing.clear()


os.register_at_fork(after_in_child=_after_fork)


# ---- who holds it, for messages


@contextmanager
def _recorded(folder: Path, key: str, doing: Doing) -> Iterator[None]:
    """Write down who holds a device. Nothing hangs on it: on a full disk there is no such record."""
    path = folder / f"{key}.{secrets.token_hex(6)}.holder"
    process, descriptor = os.getpid(), -1
    try:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            _descriptors.add(descriptor)
            locks.flock(descriptor)
            os.write(descriptor, _who(doing).encode())
        yield
    finally:
        if descriptor >= 0 and os.getpid() == process:
            path.unlink(missing_ok=True)
            _give_back(descriptor)


def _who(doing: Doing) -> str:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    name = f"process {os.getpid()} of {socket.gethostname()}" + (f" ({worker})" if worker else "")
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" (")[0]
    return f"{name} has been {doing} since {since}" + (f" in {test}" if test else "")


def _holders(folder: Path, key: str) -> str:
    """Who they are; records that killed processes left behind are removed."""
    told = []
    for path in sorted(folder.glob(f"{key}.*.holder")):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                text = os.read(descriptor, _RECORD_NBYTES).decode(errors="replace")
                if locks.flock(descriptor, shared=True):
                    path.unlink(missing_ok=True)
                else:
                    told.append("".join(letter if letter.isprintable() else " " for letter in text))
            finally:
                os.close(descriptor)
    more = f"; {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return "; ".join(told[:_MOST_TOLD]) + more if told else "each time another one was quicker"


# ---- where


def _default_folder() -> Path:
    named = os.environ.get(FOLDER_VARIABLE, "")
    return _named_folder(Path(named)) if named else _private_folder()


def _named_folder(folder: Path) -> Path:
    """One that the user has made: if it were made here, one that is not mounted would share nothing, unseen."""
    if not (folder.is_absolute() and folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise InfrastructureError(
            f"{FOLDER_VARIABLE}={folder} is not the absolute path of a folder that can be written",
            remedy="make it, and mount it in all containers that share the device; or unset the variable",
        )
    return folder


def _private_folder() -> Path:
    """A folder that only this user can write: a lock that others can take could hold a run up for ever."""
    folder = Path(tempfile.gettempdir()) / f"cgins-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise InfrastructureError(
            f"{folder} is not a folder that only this user can write",
            remedy=f"remove it, or set TMPDIR or {FOLDER_VARIABLE} to another folder",
        )
    return folder
