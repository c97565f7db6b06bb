"""`cgins traces gc`: what nothing refers to is found and removed, and nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import torch

from pytest_cgins.app import cli
from pytest_cgins.core.errors import PackError
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording import profile as profiles
from pytest_cgins.recording.maintenance import SETTLED_SECONDS, garbage, remove
from pytest_cgins.recording.profiler import profile


@pytest.fixture
def pack(recorded, tmp_path: Path) -> Path:
    recorded(lambda: torch.nn.functional.gelu(torch.randn(3, 4)), tier="full")
    return tmp_path / "pack"


def made_long_ago(path: Path) -> Path:
    then = time.time() - SETTLED_SECONDS - 60
    for file in (*path.rglob("*"), path):
        os.utime(file, (then, then))
    return path


def test_a_fresh_pack_has_no_garbage(pack: Path) -> None:
    """Its blobs and its profile are in use."""
    reader = open_pack(pack)
    profiles.write(pack, profile(reader, "cpu", reader.pack.traces)[0])
    assert garbage(pack) == []


def test_blobs_that_no_trace_refers_to_are_removed(pack: Path, capsys) -> None:
    """The rest of the pack still reads; the command says how much there was."""
    before = {file.name for file in (pack / "blobs").iterdir()}
    (pack / "blobs" / f"{'0' * 64}.safetensors").write_bytes(bytes(2**19))
    (pack / "blobs" / "notes").mkdir()
    assert cli.main(["traces", "gc", str(pack)]) == 0
    assert {file.name for file in (pack / "blobs").iterdir()} == before
    open_pack(pack).verify()
    out = capsys.readouterr().out
    assert "0.safetensors: a blob that no trace refers to, 0.50 MiB" in out
    assert f"{pack}: 2 files or folders, 0.50 MiB, removed" in out


def test_a_dry_run_removes_nothing(pack: Path, capsys) -> None:
    """It says what would go."""
    stray = pack / "blobs" / "stray"
    stray.write_bytes(b"x")
    assert cli.main(["traces", "gc", "--dry-run", str(pack)]) == 0
    assert stray.exists()
    assert "1 file or folder, 0.00 MiB, would be removed" in capsys.readouterr().out


def test_profiles_of_other_traces_go_and_unreadable_ones_stay(pack: Path) -> None:
    """A profile that this version cannot read may be a later version's."""
    reader = open_pack(pack)
    good = profiles.write(pack, profile(reader, "cpu", reader.pack.traces)[0])
    document = json.loads(good.read_text())
    (good.parent / "later.json").write_text(json.dumps({**document, "version": 2}))
    document["traces"][0]["trace"] = "0" * 16
    stale = good.parent / "stale.json"
    stale.write_text(json.dumps(document))
    assert [item.path for item in garbage(pack)] == [stale]


def test_leftovers_of_killed_recordings_go_once_they_are_old(pack: Path) -> None:
    """A recording may be writing to a fresh one; other names are none of ours."""
    old = pack.with_name(f".{pack.name}.0123abcd.tmp")
    replaced = pack.with_name(f".{pack.name}.0123abcd.old")
    running = pack.with_name(f".{pack.name}.fedcba98.tmp")
    foreign = pack.with_name(f".{pack.name}.other.tmp")
    for folder in (old, replaced, running, foreign):
        (folder / "blobs").mkdir(parents=True)
        (folder / "blobs" / "x").write_bytes(bytes(10))
    for folder in (old, replaced, foreign):
        made_long_ago(folder)
    made_long_ago(running)
    (running / "blobs" / "x").write_bytes(bytes(11))
    found = garbage(pack)
    assert [(item.path, item.nbytes) for item in found] == [(replaced, 10), (old, 10)]
    for item in found:
        remove(item)
    assert sorted(path.name for path in pack.parent.iterdir() if path.name.startswith(".")) == [
        running.name,
        foreign.name,
    ]


def test_a_link_is_removed_and_not_followed(pack: Path, tmp_path: Path) -> None:
    """What it leads to stays."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (pack / "blobs" / "link").symlink_to(kept)
    for item in garbage(pack):
        remove(item)
    assert (kept / "file").exists()
    assert not (pack / "blobs" / "link").is_symlink()


def test_of_a_damaged_pack_nothing_is_garbage(pack: Path) -> None:
    """Without a manifest no blob can be called unused."""
    (pack / "manifest.json").write_text("{}")
    with pytest.raises(PackError):
        garbage(pack)
    assert cli.main(["traces", "gc", str(pack)]) == 2
    assert any((pack / "blobs").iterdir())


def test_the_current_folder_can_be_cleaned(pack: Path, monkeypatch) -> None:
    """`.` stands for the pack that one is in."""
    made = pack.with_name(f".{pack.name}.0123abcd.tmp")
    made.mkdir()
    made_long_ago(made)
    monkeypatch.chdir(pack)
    assert [item.path for item in garbage(Path())] == [made]
