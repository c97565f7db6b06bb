"""What a worker prints: read as it comes, and only its end kept."""

from __future__ import annotations

import os

TAIL_BYTES = 16 * 1024

_CHUNK_BYTES = 64 * 1024
_CHUNKS_A_DRAIN = 64  # a worker that never stops printing must not keep its parent reading


class OutputTail:
    """The read end of a worker's stdout and stderr."""

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

    def take(self) -> str:
        """The end of all that was printed since the last `take`, with a first line for what was dropped."""
        if self._fd >= 0:
            self.drain()
        text = self._tail.decode(errors="replace")
        if self._dropped:
            text = f"[{self._dropped} bytes of output before this were dropped]\n{text}"
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
