"""Appending to a history and reading it: all or nothing, by many at a time, and after accidents."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reports import report_of

from pytest_cgins.core import documents
from pytest_cgins.core.errors import HistoryError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.report import history_file
from pytest_cgins.report.history import Head, HistoryEntry, entries
from pytest_cgins.report.history_file import append, read

Make = Callable[..., Evaluation]


@pytest.fixture
def entry(make_evaluation: Make) -> HistoryEntry:
    report = report_of(make_evaluation())
    (found,) = entries(report, Head(commit="c" * 40, dirty=False, branch="main"))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "history.jsonl"


def test_what_is_appended_is_read(entry: HistoryEntry, path: Path) -> None:
    """In order, over several runs; the folder is made."""
    assert append(path, [entry, entry]) == ""
    assert append(path, [entry]) == ""
    assert read(path).entries == (entry,) * 3
    assert path.read_bytes().count(b"\n") == 3


def test_a_torn_line_is_cut_off(entry: HistoryEntry, path: Path) -> None:
    """A machine that died leaves half a line: readers leave it out, and the next run removes it."""
    append(path, [entry])
    whole = path.read_bytes()
    for torn in (whole[:-9], whole[:4], b"\0" * 40):
        path.write_bytes(whole + torn)
        found = read(path)
        assert found.entries == (entry,)
        assert found.note == "line 2 is incomplete and ignored: the next run that appends removes it"
        assert append(path, [entry]) == f"line 2 was incomplete and has been removed: {len(torn)} bytes"
        assert path.read_bytes() == whole * 2
    path.write_bytes(whole[:30])
    append(path, [entry])
    assert path.read_bytes() == whole


def test_a_line_that_only_lacks_its_end_gets_it(entry: HistoryEntry, path: Path) -> None:
    """Editors take it away."""
    append(path, [entry])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert read(path).entries == (entry,)
    assert append(path, [entry]) == ""
    assert path.read_bytes() == whole * 2


@pytest.mark.parametrize(
    "content", [b"print('hello')\n", b"print('hello')", b"{}\n", b'{"a": 1}', b"a" * 300_000]
)
def test_no_other_file_becomes_a_history(entry: HistoryEntry, tmp_path: Path, content: bytes) -> None:
    """A mistyped path must not cost anybody a source file; nor is it read as one."""
    path = tmp_path / "kernel.py"
    path.write_bytes(content)
    with pytest.raises(HistoryError, match=r"not a history|not an entry of a history"):
        append(path, [entry])
    assert path.read_bytes() == content
    with pytest.raises(HistoryError, match=r"kernel\.py:1: not an entry of a history: "):
        read(path)


def test_what_is_no_file_is_refused(entry: HistoryEntry, tmp_path: Path) -> None:
    """A pipe would wait for its reader for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(HistoryError, match="is not a regular file"):
        append(pipe, [entry])
    for place in (pipe, tmp_path):
        with pytest.raises(HistoryError, match="is not a regular file"):
            read(place)
    with pytest.raises(HistoryError, match="No such file"):
        read(tmp_path / "absent")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2; this pytest-cgins reads 1"),
        ({"time": "yesterday\x1b[2J"}, r"'yesterday\x1b[2J' is not a time in UTC"),
        ({"time": "2026-01-02T03:04:05+02:00"}, "is not a time in UTC"),
        ({"time": "2026-01-02T03:04:05"}, "is not a time in UTC"),
        ({"median_ns_per_call": {"kernel": -1.0}}, "kernel is -1.0"),
        ({"median_ns_per_call": {"kernel": float("inf")}}, "kernel is inf"),
        ({"median_ns_per_call": {"torch": 1.0}}, "median_ns_per_call has no kernel"),
        ({"status": "GREAT"}, "status"),
        ({"more\x1b[2J": 1}, r"more\u001b[2J"),
        ({"hard": {"digest": "0" * 16, "parts": {}}}, "is not that of"),
        ({"case": "x" * 70_000}, "bytes are more than 65536"),
    ],
)
def test_a_damaged_line_is_named(entry: HistoryEntry, path: Path, change: dict[str, Any], said: str) -> None:
    """With the file, its number, what is wrong and the remedy; nothing in it reaches the terminal as it is."""
    append(path, [entry, entry])
    line = json.dumps(json.loads(documents.dump(entry)) | change)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(HistoryError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:3: not an entry of a history: ")
    assert said in str(caught.value)
    assert caught.value.remedy == "restore the file from version control, or delete that line"
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    with pytest.raises(HistoryError, match=r":3: not an entry of a history: "):
        append(path, [entry])


def test_a_file_that_is_too_large_is_refused(
    entry: HistoryEntry, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an entry that could not be read back is not written."""
    append(path, [entry])
    monkeypatch.setattr(history_file, "FILE_LIMIT_NBYTES", 100)
    with pytest.raises(HistoryError, match="bytes are more than 100"):
        read(path)
    monkeypatch.setattr(history_file, "LINE_LIMIT_NBYTES", 100)
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="longer than 100: "):
        append(path, [entry])
    assert path.read_bytes() == before


def test_many_append_at_a_time(entry: HistoryEntry, path: Path) -> None:
    """Each one's lines stay together and none is lost, torn remains of another's among them or not."""
    path.parent.mkdir()
    path.write_bytes(documents.dump(entry).encode()[:50])

    def run(number: int) -> None:
        name = f"case {number}"
        copies = [json.loads(documents.dump(entry)) | {"case": name} for _ in range(5)]
        append(path, [documents.load_python(HistoryEntry, copy) for copy in copies])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [one.case for one in read(path).entries]
    assert sorted(names) == sorted([f"case {number}" for number in range(12)] * 5)
    assert all(len(set(names[start : start + 5])) == 1 for start in range(0, 60, 5))


def test_a_lock_is_not_waited_for_for_ever(
    entry: HistoryEntry, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds it may hang."""
    append(path, [entry])
    monkeypatch.setattr(history_file, "LOCK_WAIT_S", 0.02)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(HistoryError, match=r"was locked by another process for 0\.02 s"):
            append(path, [entry])
    assert read(path).entries == (entry,)


@pytest.mark.parametrize("full", [True, False])
def test_a_full_disk_leaves_the_file_as_it_was(
    entry: HistoryEntry, path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Be it refused at once, or in the middle of the lines."""
    append(path, [entry])
    before = path.read_bytes()
    written = os.write

    def write(handle: int, data: bytes) -> int:
        count = written(handle, data[:20])
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return count

    monkeypatch.setattr(history_file.os, "write", write)
    with pytest.raises(OSError, match=r"No space left|the disk is full"):
        append(path, [entry])
    assert path.read_bytes() == before


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**32))
def test_no_bytes_crash_the_reader(data: bytes, seed: int) -> None:
    """Whatever is in it, in place of a part of a valid file, is read or refused by name."""
    import tempfile

    from tests.fuzz.seeds import histories

    rng = random.Random(seed)
    (valid,) = histories()
    start = rng.randrange(len(valid))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "h.jsonl")
        path.write_bytes(valid[:start] + data + valid[start + rng.randrange(200) :])
        refusal = ""
        try:
            read(path)
        except HistoryError as error:
            refusal = error.what
        assert refusal == "" or refusal.startswith(f"{path}:")
