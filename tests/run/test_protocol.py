"""Frames, and what is refused of them."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.run import protocol
from pytest_cgins.run.protocol import Channel

from .living import open_descriptors

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(value=json_values)
def test_what_is_sent_arrives(value: object) -> None:
    """A message comes out of the other end as it went in."""
    left, right = socket.socketpair()
    with left, right:
        Channel(left).send({"nonce": "1", "result": value})
        message, buffers = Channel(right).receive(deadline=time.monotonic() + 5)
    assert message == {"nonce": "1", "result": value}
    assert buffers == []


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_buffers_arrive_in_order(sockets: tuple[socket.socket, socket.socket], count: int) -> None:
    """Descriptors follow their message, in any number, and later messages are not disturbed."""
    channel = Channel(sockets[0])
    sent = [Buffer.from_chunks([str(number).encode()]) for number in range(count)]
    channel.send({"nonce": "1"}, sent)
    channel.send({"nonce": "2"})
    other = Channel(sockets[1])
    _, received = other.receive(deadline=time.monotonic() + 5)
    assert [bytes(buffer.view()) for buffer in received] == [str(number).encode() for number in range(count)]
    assert other.receive(deadline=time.monotonic() + 5)[0] == {"nonce": "2"}


def test_a_message_larger_than_the_socket_arrives(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Sender and receiver take turns when the socket's own buffer is full."""
    text = "x" * 5_000_000
    sender = threading.Thread(target=Channel(sockets[0]).send, args=({"result": text},))
    sender.start()
    assert Channel(sockets[1]).receive(deadline=time.monotonic() + 20)[0] == {"result": text}
    sender.join()


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(body: bytes) -> None:
    """Nothing that a hostile worker writes into a frame raises anything else."""
    try:
        message = protocol._decode(body)
    except ProtocolError:
        return
    assert 0 <= message["buffers"] <= protocol.MAXIMUM_BUFFERS


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "JSON list, not an object"),
        (b'{"version":1,"buffers":0}', "protocol version 1, not 3"),
        (b'{"version":3}', "announces None buffers"),
        (b'{"version":3,"buffers":true}', "announces True buffers"),
        (b'{"version":3,"buffers":-1}', "announces -1 buffers"),
        (b'{"version":3,"buffers":99999}', "announces 99999 buffers"),
        (b'{"version":3,"buffers":0,"result":NaN}', "NaN is not JSON"),
        (b"[" * 100_000, "does not hold JSON"),
        (b"\xff", "does not hold JSON"),
    ],
)
def test_refusals_say_why(sockets: tuple[socket.socket, socket.socket], body: bytes, words: str) -> None:
    """Each malformed frame is refused in words."""
    sockets[0].sendall(frame(body))
    with pytest.raises(ProtocolError, match=words):
        Channel(sockets[1]).receive(deadline=time.monotonic() + 5)


def test_an_announced_length_is_not_believed(sockets: tuple[socket.socket, socket.socket]) -> None:
    """A frame of 4 GiB is refused before a byte of it is read."""
    sockets[0].sendall(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="4294967295 bytes"):
        Channel(sockets[1]).receive(deadline=time.monotonic() + 5)


def test_missing_descriptors_are_refused(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Fewer descriptors than announced do not shift the messages that follow."""
    sockets[0].sendall(frame(json.dumps({"version": 3, "buffers": 2}).encode()) + b"F")
    with pytest.raises(ProtocolError, match="2 descriptors were announced, 0 came"):
        Channel(sockets[1]).receive(deadline=time.monotonic() + 5)


def test_descriptors_behind_a_refused_one_are_closed(sockets: tuple[socket.socket, socket.socket]) -> None:
    """A hostile worker cannot fill our table of descriptors."""
    before = open_descriptors()
    sockets[0].sendall(frame(json.dumps({"version": 3, "buffers": 3}).encode()))
    socket.send_fds(sockets[0], [b"F"], [0, 0, 0])
    with pytest.raises(ProtocolError, match="refused"):
        Channel(sockets[1]).receive(deadline=time.monotonic() + 5)
    assert open_descriptors() == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), "x" * protocol.MAXIMUM_FRAME_BYTES])
def test_what_is_not_json_is_not_sent(sockets: tuple[socket.socket, socket.socket], value: object) -> None:
    """NaN, infinities, objects and oversized messages raise at the sender."""
    with pytest.raises(ProtocolError):
        Channel(sockets[0]).send({"result": value})


def test_a_silent_peer_costs_no_more_than_the_deadline(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Half a frame and then nothing ends in TimeoutError."""
    sockets[0].sendall(b"\x00\x00\x00\x10{")
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(sockets[1]).receive(deadline=start + 0.1)
    assert time.monotonic() - start < 2


def test_a_closed_peer_is_the_end_of_the_file(sockets: tuple[socket.socket, socket.socket]) -> None:
    """A connection that is closed in the middle of a frame raises EOFError, at either end."""
    sockets[0].sendall(b"\x00\x00\x00\x10{")
    sockets[0].close()
    with pytest.raises(EOFError):
        Channel(sockets[1]).receive(deadline=time.monotonic() + 5)
    with pytest.raises(EOFError):
        Channel(sockets[1]).send({})


def test_input_is_seen_without_reading_it(sockets: tuple[socket.socket, socket.socket]) -> None:
    """`has_input` tells of bytes that wait, and of an end, and takes nothing away."""
    channel = Channel(sockets[1])
    assert not channel.has_input
    Channel(sockets[0]).send({"result": 1})
    assert channel.has_input
    assert channel.receive(deadline=time.monotonic() + 5)[0] == {"result": 1}
    assert not channel.has_input
    sockets[0].close()
    assert channel.has_input


def test_an_end_is_told_from_input(sockets: tuple[socket.socket, socket.socket]) -> None:
    """`at_end` is true when the other side is gone and all that it wrote was read."""
    channel = Channel(sockets[1])
    assert not channel.at_end
    Channel(sockets[0]).send({"result": 1})
    sockets[0].close()
    assert not channel.at_end
    channel.receive(deadline=time.monotonic() + 5)
    assert channel.at_end


def test_sides_are_served_while_waiting(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Several descriptors are read while nothing comes on the socket, also after one of them was closed."""
    pipes = [os.pipe(), os.pipe()]
    found: list[bytes] = []

    def read(fd: int) -> None:
        found.append(os.read(fd, 100))

    channel = Channel(sockets[1], sides={reader: partial(read, reader) for reader, _ in pipes})
    os.write(pipes[0][1], b"one")
    os.close(pipes[0][1])
    os.write(pipes[1][1], b"two")
    with pytest.raises(TimeoutError):
        channel.receive(deadline=time.monotonic() + 0.1)
    assert sorted(found) == [b"one", b"two"]
    for fd in (pipes[0][0], *pipes[1]):
        os.close(fd)


def test_what_the_watch_raises_ends_the_waiting(sockets: tuple[socket.socket, socket.socket]) -> None:
    """An exception of `still_there` comes through, long before the deadline."""

    def refuse() -> bool:
        raise MemoryError("enough")

    with pytest.raises(MemoryError, match="enough"):
        Channel(sockets[1], still_there=refuse).receive(deadline=time.monotonic() + 60)
