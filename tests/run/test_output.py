"""The end of what a worker prints."""

from __future__ import annotations

import os
import threading

import pytest

from pytest_cgins.run.output import TAIL_BYTES, Output, OutputTail, Printed


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


def test_bytes_are_counted_until_they_are_taken() -> None:
    """`nbytes` counts what was read of both pipes, also what was dropped."""
    (stdout, stdout_end), (stderr, stderr_end) = os.pipe(), os.pipe()
    output = Output(stdout, stderr)
    for _ in range(3):
        os.write(stdout_end, b"x" * TAIL_BYTES)
        os.write(stderr_end, b"y")
        for drain in output.drains.values():
            drain()
    assert output.nbytes == 3 * TAIL_BYTES + 3
    assert output.take().stderr == "yyy"
    assert output.nbytes == 0
    os.close(stdout_end)
    os.close(stderr_end)
    assert output.close() == Printed()


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (Printed(), ""),
        (Printed("out\n", ""), "out\n"),
        (Printed("", "err\n"), "stderr:\nerr\n"),
        (Printed("out", "err"), "out\nstderr:\nerr"),
        (Printed("a", "b") + Printed("c", "d"), "ac\nstderr:\nbd"),
    ],
)
def test_stderr_stands_below_stdout(printed: Printed, text: str) -> None:
    """As one text, stdout comes first, and stderr has a line of its own above it."""
    assert printed.text == text
