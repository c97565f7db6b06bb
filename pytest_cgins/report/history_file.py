"""The file of a history: JSON Lines that many runs append to, and none rewrites.

A run's lines go in by one write under a lock, and are on the disk when it is over. What a machine that died left of a
line is cut off by the next run that appends.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.core import atomic, documents, locks
from pytest_cgins.core.errors import HistoryError
from pytest_cgins.core.text import counted
from pytest_cgins.report.escape import visible
from pytest_cgins.report.history import HistoryEntry

FILE_LIMIT_NBYTES = 2**28
"""A line has some 1.5 KB."""
LINE_LIMIT_NBYTES = 2**16
LOCK_WAIT_S = 30.0

_BEGINNING = b'{"version":'
_REMEDY = "restore the file from version control, or delete that line"


@dataclass(frozen=True, slots=True)
class History:
    """What a file holds."""

    entries: tuple[HistoryEntry, ...]
    """As they were appended."""
    note: str = ""
    """About a line that was torn; "" without one."""


def append(path: Path, entries: Iterable[HistoryEntry]) -> str:
    """Append entries, all or none; the folder is made if it is not there.

    Returns:
        What was repaired, for a person; "" if nothing.

    Raises:
        HistoryError: the file is not a history, or another run holds it for too long.
        OSError: it cannot be written.
    """
    lines = [documents.dump(entry).encode() + b"\n" for entry in entries]
    if too_long := next((line for line in lines if len(line) > LINE_LIMIT_NBYTES), None):
        raise HistoryError(
            f"an entry of {counted(len(too_long), 'byte')} is longer than {LINE_LIMIT_NBYTES}: {too_long[:60]!r}…",
            remedy="shorten the names of kernels and traces",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    # Without O_NONBLOCK the opening of a pipe would wait for its reader.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise HistoryError(f"{path} is not a regular file", remedy="name another one")
        _lock(handle, path)
        repaired = _mend(handle, path)
        _write(handle, b"".join(lines))
    finally:
        os.close(handle)
    if new:
        atomic.sync_folder(path.parent)
    return repaired


def read(path: Path) -> History:
    """All entries of a file. A last line without an end is a run's that died, or that still writes: it is left out.

    Raises:
        HistoryError: the file cannot be read, is too large, or has a line that is no entry; the message has its number.
    """
    try:
        nbytes = path.stat().st_size if path.is_file() else 0
        if nbytes > FILE_LIMIT_NBYTES:
            raise HistoryError(
                f"{path}: {counted(nbytes, 'byte is', 'bytes are')} more than {FILE_LIMIT_NBYTES}",
                remedy="move old lines to another file",
            )
        if path.exists() and not path.is_file():
            raise HistoryError(
                f"{path} is not a regular file", remedy="name the file that --cgins-history wrote"
            )
        data = path.read_bytes()
    except OSError as error:
        raise HistoryError(
            f"{path}: {error.strerror or error}", remedy="name the file that --cgins-history wrote"
        ) from None
    lines = data.split(b"\n")
    last = lines.pop()
    found = [_parse(line, path, number) for number, line in enumerate(lines, start=1) if line.strip()]
    note = ""
    if last.strip():
        try:
            found.append(_parse(last, path, len(lines) + 1))
        except HistoryError:
            if not _is_torn(last):
                raise
            note = f"line {len(lines) + 1} is incomplete and ignored: the next run that appends removes it"
    return History(tuple(found), note)


def _parse(line: bytes, path: Path, number: int) -> HistoryEntry:
    if len(line) > LINE_LIMIT_NBYTES:
        raise HistoryError(
            f"{path}:{number}: not an entry of a history: {counted(len(line), 'byte is', 'bytes are')} more than {LINE_LIMIT_NBYTES}",
            remedy=_REMEDY,
        )
    try:
        return documents.load(HistoryEntry, line)
    except ValueError as error:
        said = visible(documents.complaint(error))[:400]
        raise HistoryError(f"{path}:{number}: not an entry of a history: {said}", remedy=_REMEDY) from None


def _is_torn(line: bytes) -> bool:
    """Whether this is the beginning of an entry; a file system that was not unmounted may leave zeros for it."""
    return line.startswith(_BEGINNING) or _BEGINNING.startswith(line.rstrip(b"\0"))


def _lock(handle: int, path: Path) -> None:
    if not locks.flock_within(handle, LOCK_WAIT_S, str(path)):
        raise HistoryError(
            f"{path} was locked by another process for {LOCK_WAIT_S:g} s",
            remedy="end that process, or give this run its own file",
        )


def _mend(handle: int, path: Path) -> str:
    """Cut off a torn last line, or end one that only lacks its end; refuse a file of another kind."""
    size = os.fstat(handle).st_size
    tail = os.pread(handle, 2 * LINE_LIMIT_NBYTES, max(0, size - 2 * LINE_LIMIT_NBYTES))
    complete, ended, torn = tail.rpartition(b"\n")
    if not ended and len(tail) < size:
        raise HistoryError(
            f"{path} is not a history: its last line has no line break", remedy="name another file"
        )
    if complete.strip():
        # By its last complete line, so that nobody's source file becomes a history.
        _parse(complete.rstrip().rpartition(b"\n")[2], path, _lines(handle, size - len(torn)))
    if not torn:
        return ""
    number = _lines(handle, size - len(torn)) + 1
    try:
        _parse(torn, path, number)
    except HistoryError:
        if not _is_torn(torn):
            raise
        os.ftruncate(handle, size - len(torn))
        return f"line {number} was incomplete and has been removed: {counted(len(torn), 'byte')}"
    _write(handle, b"\n")
    return ""


def _lines(handle: int, nbytes: int) -> int:
    """Lines that end in the first so many bytes."""
    return sum(
        os.pread(handle, min(2**20, nbytes - start), start).count(b"\n") for start in range(0, nbytes, 2**20)
    )


def _write(handle: int, data: bytes) -> None:
    """All of it in one write, or nothing; on the disk when it returns."""
    size = os.fstat(handle).st_size
    written = 0
    try:
        written = os.write(handle, data)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise
    if written != len(data):
        os.ftruncate(handle, size)
        raise OSError(
            errno.ENOSPC,
            f"only {written} of {counted(len(data), 'byte was', 'bytes were')} written: the disk is full",
        )
