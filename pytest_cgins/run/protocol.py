"""Frames between the parent and a worker: JSON with a length in front, and descriptors behind.

A message is one frame, 4 bytes of big-endian length and that many bytes of JSON (an object), followed by
the descriptors of its buffers, at most 64 of them on each `F` byte. Nothing is unpickled, and every size is
checked before anything is allocated.

A request and its answer are four messages:

    parent → worker   {"method": …, "params": …}                     buffers
    worker → parent   {"done": true}                                 code under test has returned
    parent → worker   {"nonce": …}                                   random, made only now
    worker → parent   {"nonce": …, "result": … | "error": …, "fatal": …}   buffers

So the nonce does not exist while code under test runs: whatever that code writes to the connection is either
bytes before or behind `done`, or an answer without the nonce. Both are forgeries, and cost the worker its life. It
does not hold against code that speaks for the whole worker, reading the nonce and answering in its place: such
code has the process for itself. What it cannot have is the right outputs, as gold and reference are in another
process. The challenge costs one more round trip, some 50 µs.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.text import counted

T = TypeVar("T")

PROTOCOL_VERSION = 3
START = "__start__"
"""Method of the first request, which names the service to make."""
DONE = {"done": True}
"""What a worker says before it gets the nonce."""
DONE_LIMIT_BYTES = 256
"""Limit of that frame: until then whoever writes is not asked."""
CONNECTION_CUT = 71
"""Exit code of a worker that finds its connection closed when it wants to answer."""
MAXIMUM_FRAME_BYTES = 64 * 2**20
MAXIMUM_BUFFERS = 4096

_HEADER_BYTES = 4
_DESCRIPTORS_A_BYTE = 64
_TICK_S = 0.1


class Channel:
    """One end of a Unix stream socket that speaks frames. Never blocks past a deadline."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        sides: Mapping[int, Callable[[], object]] | None = None,
        still_there: Callable[[], bool] | None = None,
    ) -> None:
        """Take over a connected socket.

        Args:
            connection: one end of a socket pair.
            sides: descriptors to serve while the channel waits, with what is called when one is readable.
            still_there: asked ten times a second or more often; once it says no and nothing is left to read, the
                channel counts as closed, though a child of the process may still hold the other end. What it
                raises ends the waiting.
        """
        connection.setblocking(False)
        self._connection = connection
        self._sides = dict(sides or {})
        self._still_there = still_there

    def send(
        self, message: dict[str, Any], buffers: Sequence[Buffer] = (), *, deadline: float | None = None
    ) -> None:
        """Send one message; `deadline` is a reading of `time.monotonic`.

        Raises:
            ProtocolError: if the message is too long, or holds what JSON has not (NaN, infinities).
            TimeoutError: past the deadline.
            EOFError: if the other side is gone.
        """
        frame = _encode(message, len(buffers))
        descriptors = [buffer.fileno() for buffer in buffers]
        view = memoryview(frame)
        while view:
            sent = self._do(partial(self._connection.send, view), select.POLLOUT, deadline)
            view = view[sent:]
        for start in range(0, len(descriptors), _DESCRIPTORS_A_BYTE):
            chunk = descriptors[start : start + _DESCRIPTORS_A_BYTE]
            send = partial(socket.send_fds, self._connection, [b"F"], chunk)
            self._do(send, select.POLLOUT, deadline)

    def receive(
        self, *, deadline: float | None = None, limit_bytes: int = MAXIMUM_FRAME_BYTES
    ) -> tuple[dict[str, Any], list[Buffer]]:
        """Wait for one message, of at most `limit_bytes`, and the buffers that belong to it.

        Raises:
            ProtocolError: if what came is not a message.
            TimeoutError: past the deadline.
            EOFError: if the other side is gone.
        """
        length = int.from_bytes(self._read(_HEADER_BYTES, deadline), "big")
        if length > limit_bytes:
            raise ProtocolError(
                f"a frame of {counted(length, 'byte')} was announced; {limit_bytes} is the limit"
            )
        message = _decode(self._read(length, deadline))
        return message, self._read_buffers(message.pop("buffers"), deadline)

    def await_input(self, deadline: float) -> None:
        """Wait until something lies there to be read, and read nothing.

        Raises:
            TimeoutError: past the deadline.
        """
        while not self.has_input:
            self._wait(select.POLLIN, deadline)

    @property
    def has_input(self) -> bool:
        """Whether something lies there to be read, or the other side is gone."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def at_end(self) -> bool:
        """Whether the other side is gone and has left nothing to read."""
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket: the other side reads an end of file."""
        self._connection.close()

    def _read(self, nbytes: int, deadline: float | None) -> bytearray:
        data = bytearray()
        while len(data) < nbytes:
            missing = min(nbytes - len(data), 2**20)
            part = self._do(partial(self._connection.recv, missing), select.POLLIN, deadline)
            if not part:
                raise EOFError("the connection was closed")
            data += part
        return data

    def _read_buffers(self, count: int, deadline: float | None) -> list[Buffer]:
        buffers: list[Buffer] = []
        while len(buffers) < count:
            wanted = min(count - len(buffers), _DESCRIPTORS_A_BYTE)
            receive = partial(socket.recv_fds, self._connection, 1, wanted, socket.MSG_CMSG_CLOEXEC)
            mark, descriptors, _, _ = self._do(receive, select.POLLIN, deadline)
            arrived = _adopt_all(descriptors)
            if not mark:
                raise EOFError("the connection was closed")
            if mark != b"F" or len(arrived) != wanted:
                raise ProtocolError(
                    f"{counted(wanted, 'descriptor was', 'descriptors were')} announced, {len(arrived)} came with {mark!r}"
                )
            buffers += arrived
        return buffers

    def _do(self, action: Callable[[], T], event: int, deadline: float | None) -> T:
        """Repeat a socket call until it does something; a lost connection becomes EOFError."""
        while deadline is None or time.monotonic() < deadline:
            try:
                return action()
            except (BlockingIOError, InterruptedError):
                self._wait(event, deadline)
            except OSError as error:
                raise EOFError(f"the connection was lost: {error}") from error
        raise TimeoutError("the deadline has passed")

    def _wait(self, event: int, deadline: float | None) -> None:
        """Return once the socket is ready, serving the side descriptors meanwhile."""
        poll = select.poll()
        poll.register(self._connection, event)
        for fd in self._sides:
            poll.register(fd, select.POLLIN)
        tick = None if self._still_there is None else _TICK_S
        while True:
            there = self._still_there is None or self._still_there()
            ready = dict(poll.poll(_milliseconds(tick, deadline)))
            if self._connection.fileno() in ready:
                return
            if not there:
                raise EOFError("the process at the other end has ended")
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("the deadline has passed")
            for fd, events in ready.items():
                if events & select.POLLIN:
                    self._sides[fd]()
                else:
                    poll.unregister(fd)


def _encode(message: dict[str, Any], buffers: int) -> bytes:
    if buffers > MAXIMUM_BUFFERS:
        raise ProtocolError(
            f"a message cannot carry {counted(buffers, 'buffer')}; {MAXIMUM_BUFFERS} is the limit"
        )
    complete = {**message, "version": PROTOCOL_VERSION, "buffers": buffers}
    try:
        body = json.dumps(complete, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be written as JSON: {error}") from error
    if len(body) > MAXIMUM_FRAME_BYTES:
        raise ProtocolError(
            f"a message takes {counted(len(body), 'byte')}; {MAXIMUM_FRAME_BYTES} is the limit"
        )
    return len(body).to_bytes(_HEADER_BYTES, "big") + body


def _decode(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a frame; the result has an int `buffers` within limits, and no `version` any more."""
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame does not hold JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame holds a JSON {type(message).__name__}, not an object")
    version = message.pop("version", None)
    if version != PROTOCOL_VERSION:
        raise ProtocolError(f"a frame is of protocol version {version!r}, not {PROTOCOL_VERSION}")
    count = message.get("buffers")
    if type(count) is not int or not 0 <= count <= MAXIMUM_BUFFERS:
        raise ProtocolError(f"a frame announces {count!r} buffers")
    return message


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _adopt_all(descriptors: Sequence[int]) -> list[Buffer]:
    pending, buffers = list(descriptors), []
    try:
        while pending:
            buffers.append(Buffer.adopt(pending.pop(0)))
    finally:
        for fd in pending:
            os.close(fd)
    return buffers


def _milliseconds(tick_s: float | None, deadline: float | None) -> float | None:
    """How long to poll: the sooner of both, None for ever."""
    remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
    limits = [limit for limit in (tick_s, remaining) if limit is not None]
    return 1000 * min(limits) if limits else None
