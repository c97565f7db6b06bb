"""Anonymous files that travel between processes."""

from __future__ import annotations

import os
import tempfile

import pytest

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError


def test_content_is_the_chunks_one_after_the_other() -> None:
    """A buffer holds what was written into it, and reports its size."""
    with Buffer.from_chunks([b"abc", b"", memoryview(b"de")]) as buffer:
        assert bytes(buffer.view()) == b"abcde"
        assert buffer.nbytes == 5


def test_an_empty_buffer_can_be_viewed() -> None:
    """No bytes are as good as some, though nothing can be mapped."""
    assert bytes(Buffer.from_chunks([]).view()) == b""


def test_nobody_changes_a_buffer_once_it_is_made() -> None:
    """Neither writing, shrinking nor growing is possible through the descriptor."""
    buffer = Buffer.from_chunks([b"gold"])
    for change in (
        lambda: os.pwrite(buffer.fileno(), b"iron", 0),
        lambda: os.ftruncate(buffer.fileno(), 0),
        lambda: os.ftruncate(buffer.fileno(), 10**6),
    ):
        with pytest.raises(PermissionError):
            change()
    assert bytes(buffer.view()) == b"gold"


def test_writing_to_a_view_stays_private() -> None:
    """A view may be written, and the next reader still sees what was sent."""
    buffer = Buffer.from_chunks([b"gold"])
    view = buffer.view()
    view[:] = b"iron"
    assert bytes(buffer.view()) == b"gold"


def test_a_view_outlives_its_buffer() -> None:
    """Tensors may lie on a view after the descriptor was given back."""
    buffer = Buffer.from_chunks([b"gold"])
    view = buffer.view()
    buffer.close()
    buffer.close()
    assert bytes(view) == b"gold"
    with pytest.raises(ValueError, match="closed"):
        buffer.fileno()


def test_a_descriptor_is_not_inherited() -> None:
    """Programs that a kernel starts do not see the buffers."""
    assert not os.get_inheritable(Buffer.from_chunks([b"x"]).fileno())


def test_a_file_that_could_still_change_is_refused() -> None:
    """What a worker sends must be frozen: an ordinary file or a fresh memfd is not."""
    with tempfile.TemporaryFile() as file, pytest.raises(ProtocolError, match="not sealed"):
        Buffer.adopt(os.dup(file.fileno()))
    with pytest.raises(ProtocolError, match="not sealed"):
        Buffer.adopt(os.memfd_create("test"))


def test_what_is_no_file_is_refused_and_closed() -> None:
    """A pipe in a buffer's place raises, and its descriptor does not leak."""
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    with pytest.raises(ProtocolError, match="not a regular file"):
        Buffer.adopt(read_fd)
    with pytest.raises(OSError):
        os.fstat(read_fd)
