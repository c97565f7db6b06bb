"""Where kernels and tensors are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.doctor import storage


def test_build_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not made yet will do if it can be made; one with builds tells how many and how large."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path / "a" / "b"))
    found = storage.build_cache()
    assert (found.state, found.where) == ("ok", str(tmp_path / "a" / "b" / "builds"))
    assert found.detail.startswith("not made yet, ")
    entry = tmp_path / "a" / "b" / "builds" / "ab" / "abc"
    entry.mkdir(parents=True)
    (entry / "build.json").write_text("{}")
    (entry / "kernel.so").write_bytes(b"x" * 2046)
    assert storage.build_cache().detail.startswith("1 build, 2.0 KiB, ")
    assert sorted(path.name for path in entry.iterdir()) == ["build.json", "kernel.so"]


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its way is told with the system's words."""
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path / "taken"))
    found = storage.build_cache()
    assert (found.state, "Not a directory" in found.detail) == ("unusable", True)


def test_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tiny /dev/shm, and none, are told."""
    assert storage.shared_memory(tmp_path / "nowhere").state == "missing"
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: (64 << 20, 0, 64 << 20))
    small = storage.shared_memory(tmp_path)
    assert (small.state, small.detail) == ("unusable", "64.0 MiB of 64.0 MiB free")
