"""The end of what a worker prints."""

from __future__ import annotations

import os
import threading

from pytest_cgins.execute.output import TAIL_BYTES, OutputTail


def test_output_is_taken_once() -> None:
    """`take` gives what was printed since the last time."""
    read_fd, write_fd = os.pipe()
    tail = OutputTail(read_fd)
    os.write(write_fd, b"one\n")
    assert tail.take() == "one\n"
    assert tail.take() == ""
    os.write(write_fd, b"two \xff\n")
    os.close(write_fd)
    assert tail.close() == "two �\n"
    assert tail.close() == ""


def test_only_the_end_is_kept() -> None:
    """A flood is read on, its beginning is dropped, and the drop is reported."""
    read_fd, write_fd = os.pipe()
    tail = OutputTail(read_fd)
    flood = b"".join(b"%09d\n" % number for number in range(10_000))

    def write() -> None:
        os.write(write_fd, flood)
        os.close(write_fd)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        tail.drain()
    first, rest = tail.take().split("\n", 1)
    assert first == f"[{len(flood) - TAIL_BYTES} bytes of output before this were dropped]"
    assert rest == flood[-TAIL_BYTES:].decode()
    tail.close()
