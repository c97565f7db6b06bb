"""What a worker prints: stdout and stderr apart, read as it comes, and only the ends kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_cgins.core.text import counted

TAIL_BYTES = 16 * 1024

_CHUNK_BYTES = 64 * 1024
_CHUNKS_A_DRAIN = 64  # a worker that never stops printing must not keep its parent reading


@dataclass(frozen=True, slots=True)
class Printed:
    """What a process printed in some time."""

    stdout: str = ""
    """End of its stdout, with a first line for what was dropped."""
    stderr: str = ""
    """The end of stderr."""

    @property
    def text(self) -> str:
        """Both, for a person: stdout, and below a line `stderr:` what went there."""
        if not self.stderr:
            return self.stdout
        between = "" if not self.stdout or self.stdout.endswith("\n") else "\n"
        return f"{self.stdout}{between}stderr:\n{self.stderr}"

    def __add__(self, later: Printed) -> Printed:
        return Printed(self.stdout + later.stdout, self.stderr + later.stderr)


class OutputTail:
    """The read end of one pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._tail = bytearray()
        self._dropped = 0

    def drain(self) -> None:
        """Read what is there, without waiting."""
        for _ in range(_CHUNKS_A_DRAIN):
            try:
                chunk = os.read(self._fd, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                return
            self._tail += chunk
            excess = max(0, len(self._tail) - TAIL_BYTES)
            del self._tail[:excess]
            self._dropped += excess

    @property
    def nbytes(self) -> int:
        """Bytes that were read since the last `take`."""
        return self._dropped + len(self._tail)

    def take(self) -> str:
        """The end of all that was printed since the last `take`, with a first line for what was dropped."""
        if self._fd >= 0:
            self.drain()
        text = self._tail.decode(errors="replace")
        if self._dropped:
            text = f"[{counted(self._dropped, 'byte')} of output before this were dropped]\n{text}"
        self._tail.clear()
        self._dropped = 0
        return text

    def close(self) -> str:
        """Take what is left, then close the descriptor."""
        text = self.take()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return text


class Output:
    """The read ends of a worker's stdout and stderr."""

    def __init__(self, stdout_fd: int, stderr_fd: int) -> None:
        self._tails = {stdout_fd: OutputTail(stdout_fd), stderr_fd: OutputTail(stderr_fd)}

    @property
    def drains(self) -> Mapping[int, Callable[[], object]]:
        """Descriptors, and what to call when there is something to read."""
        return {fd: tail.drain for fd, tail in self._tails.items()}

    @property
    def nbytes(self) -> int:
        """Bytes that were read since the last `take`."""
        return sum(tail.nbytes for tail in self._tails.values())

    def take(self) -> Printed:
        """What was printed since the last time."""
        return Printed(*(tail.take() for tail in self._tails.values()))

    def close(self) -> Printed:
        """Take what is left, then close the descriptors."""
        return Printed(*(tail.close() for tail in self._tails.values()))
