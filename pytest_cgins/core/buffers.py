"""Bytes that travel between processes as a file descriptor, never by a name and never by pickle."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from collections.abc import Iterable

from pytest_cgins.core.errors import ProtocolError

# A sent buffer is frozen: a kernel under test that kept the descriptor can neither change an answer while it is
# judged nor shrink the file under a reader's mapping (SIGBUS).
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Buffer:
    """An owned descriptor of an anonymous file whose content no longer changes."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self._fd = fd
        self.nbytes = nbytes

    @classmethod
    def from_chunks(cls, chunks: Iterable[bytes | bytearray | memoryview]) -> Buffer:
        """Concatenate the chunks into a new buffer and freeze it."""
        fd = os.memfd_create("cgins", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            nbytes = 0
            for chunk in chunks:
                view = memoryview(chunk).cast("B")
                nbytes += view.nbytes
                while view.nbytes:
                    view = view[os.write(fd, view) :]
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, nbytes)

    @classmethod
    def adopt(cls, fd: int) -> Buffer:
        """Take over a descriptor that came from another process.

        Raises:
            ProtocolError: if it is not a frozen anonymous file; the descriptor is closed.
        """
        os.set_inheritable(fd, False)
        status = os.fstat(fd)
        reason = ""
        if not stat.S_ISREG(status.st_mode):
            reason = f"it is not a regular file (mode {status.st_mode:o})"
        elif _seals(fd) & _SEALS != _SEALS:
            reason = "its content could still change: it is not sealed"
        if reason:
            os.close(fd)
            raise ProtocolError(
                f"a descriptor that a worker sent was refused: {reason}",
                remedy="code under test must not write to pytest-cgins' own connection",
            )
        return cls(fd, status.st_size)

    def fileno(self) -> int:
        """The descriptor.

        Raises:
            ValueError: after `close`.
        """
        if self._fd < 0:
            raise ValueError("the buffer is closed")
        return self._fd

    def view(self) -> memoryview:
        """The content, mapped privately: writes to the view stay in this process. Lives on after `close`."""
        if self.nbytes == 0:
            return memoryview(bytearray())
        return memoryview(mmap.mmap(self.fileno(), self.nbytes, access=mmap.ACCESS_COPY))

    def close(self) -> None:
        """Give the descriptor back; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Buffer(fd={self._fd}, nbytes={self.nbytes})"


def _seals(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return 0
