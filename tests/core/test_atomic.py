"""Files that are replaced whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_cgins.core import atomic


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    """Nothing else is left beside it."""
    path = tmp_path / "new" / "file.json"
    atomic.write_text(path, "first")
    atomic.write_text(path, "zweite Fassung: ü", durable=True)
    assert path.read_text(encoding="utf-8") == "zweite Fassung: ü"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_write_that_breaks_off_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether the user or the disk ended it."""

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(Path if name == "replace" else os, name, broken)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_text(path, "new", durable=True)
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {"file": "old"}


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    """As for any new file."""
    before = os.umask(0o027)
    try:
        atomic.write_text(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_what_is_no_unicode_is_escaped_on_request(tmp_path: Path) -> None:
    """A lone surrogate, which models answer with, ends no journal."""
    with pytest.raises(UnicodeEncodeError):
        atomic.write_text(tmp_path / "file", "a\ud800")
    atomic.write_text(tmp_path / "file", "a\ud800", errors="backslashreplace")
    assert (tmp_path / "file").read_text() == "a\\ud800"
