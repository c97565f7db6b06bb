"""The bound of the build cache: what goes first, what stays, and what `cgins cache` says of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.app import cli
from pytest_cgins.building.cache import space
from pytest_cgins.building.cache.store import Cache
from pytest_cgins.core.errors import ConfigError
from tests.building.processes import holding, python

SIZE = 100_000
# In a process of its own, so that the test's process holds no lock on what is stored.
STORE = """
import sys
from pathlib import Path
from pytest_cgins.building.cache.store import Cache
cache = Cache(Path(sys.argv[1])); cache.usable()
for index in range(int(sys.argv[2])):
    with cache.work_folder() as folder:
        (folder / "kernel.so").write_bytes(bytes(100_000))
        cache.store(f"{index:064d}", (), read=[], built=folder, artifact="kernel.so", record=dict(
            kernel=f"k{index}", implementation="cpp", device="cpu", contract="launcher", archs=["sm_80", "sm_90a"],
            status=0, command="g++", log="", seconds=0.5))
"""
HOLD = """
import sys
from pathlib import Path
from pytest_cgins.building.cache.store import Cache
print(Cache(Path(sys.argv[1])).lookup(sys.argv[2], ()).artifact, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of four builds; the higher the number, the longer ago it was used."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "builds"
    python(STORE, folder, 4)
    for entry in space.stored(folder):
        age = (1 + int(entry.name[1])) * 3600 * 24
        os.utime(entry.folder / "build.json", (time.time() - age, time.time() - age))
    return folder


def names(entries: list[space.Stored]) -> list[str]:
    return [entry.name for entry in entries]


def test_least_recently_used_go_first(folder: Path) -> None:
    """Down to a size, builds go whose last use is longest ago, with their manifests."""
    assert names(space.stored(folder)) == ["k0/cpp", "k1/cpp", "k2/cpp", "k3/cpp"]
    would = space.prune(folder, max_nbytes=int(2.5 * SIZE), dry_run=True)
    assert len(space.stored(folder)) == 4
    assert would == space.prune(folder, max_nbytes=int(2.5 * SIZE))
    assert names(would) == ["k3/cpp", "k2/cpp"]
    assert names(space.stored(folder)) == ["k0/cpp", "k1/cpp"]
    assert len(list((folder / "manifests").glob("*.json"))) == 2
    assert Cache(folder).lookup(f"{2:064d}", ()) is None
    assert Cache(folder).lookup(f"{1:064d}", ()) is not None


def test_what_jit_compilers_keep_is_bounded_too(folder: Path) -> None:
    """Triton's own cache lies with the builds: what it compiled longest ago goes first."""
    kept = folder / space.JIT / "ABCDEF"
    kept.mkdir(parents=True)
    (kept / "softmax.cubin").write_bytes(bytes(SIZE))
    age = time.time() - 30 * 24 * 3600
    os.utime(kept, (age, age))
    assert names(space.stored(folder))[-1] == "a JIT compiler's"
    assert names(space.prune(folder, max_nbytes=int(4.5 * SIZE))) == ["a JIT compiler's"]
    assert not kept.exists()


def test_a_use_is_recorded(folder: Path) -> None:
    """A build that was just looked up is the last to go."""
    entry = Cache(folder).lookup(f"{3:064d}", ())
    assert entry is not None
    assert (space.stored(folder)[0].name, space.stored(folder)[0].folder) == (
        "k3/cpp",
        Cache(folder).folder_of(entry.key),
    )


def test_what_a_living_process_was_given_stays(folder: Path) -> None:
    """Between a lookup and the end of its process nothing removes the build; afterwards it may go."""
    with holding(HOLD, folder, f"{3:064d}") as (_, artifact):
        assert len(space.prune(folder, everything=True)) == 3
        assert Path(artifact).is_file()
    assert names(space.prune(folder, everything=True)) == ["k3/cpp"]
    assert not Path(artifact).exists()


def test_age_and_unreadable_records(folder: Path) -> None:
    """What was not used for so long goes; an entry without a record is listed and goes too."""
    next(folder.glob("??/*/build.json")).write_text("{")
    assert "?" in names(space.stored(folder))
    assert len(space.prune(folder, older_than_s=2.5 * 86_400)) >= 2
    assert names(space.prune(folder, everything=True))
    assert space.stored(folder) == []


def test_a_new_build_evicts_old_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `$CGINS_CACHE_SIZE` is passed, old builds go until a fifth of it is free."""
    monkeypatch.setenv("CGINS_CACHE_SIZE", "1MB")
    space.added(folder, 400_000)
    assert len(space.stored(folder)) == 4
    monkeypatch.setenv("CGINS_CACHE_SIZE", "350 kB")
    space.added(folder, SIZE)
    assert names(space.stored(folder)) == ["k0/cpp", "k1/cpp"]


@given(st.integers(0, 10**12))
def test_sizes(nbytes: int) -> None:
    """Sizes are read in decimal and binary units, and nothing else is one."""
    assert space.parse_size(str(nbytes)) == nbytes
    assert space.parse_size(f"{nbytes} KiB") == nbytes * 1024
    assert space.parse_size(f"{nbytes}MB") == nbytes * 10**6


@pytest.mark.parametrize("text", ["", "5 apples", "-1", "1e9", "5iB"])
def test_no_sizes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that is none is refused with the variable's name."""
    with pytest.raises(ValueError, match="is not a size"):
        space.parse_size(text)
    if text:
        monkeypatch.setenv("CGINS_CACHE_SIZE", text)
        with pytest.raises(ConfigError, match="CGINS_CACHE_SIZE"):
            space.limit_nbytes()


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ls` lists, as a table or as JSON, `prune` says what it removed, `path` prints the folder."""
    assert cli.main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert cli.main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert [word in out for word in ("k0/cpp", "launcher", "sm_90a", "0.50", "4 d")] == [True] * 5
    assert "4 builds, 40" in out
    assert cli.main(["cache", "ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [build["name"] for build in listed["builds"]] == ["k0/cpp", "k1/cpp", "k2/cpp", "k3/cpp"]
    assert listed["nbytes"] == sum(build["nbytes"] for build in listed["builds"]) > 4 * SIZE
    assert cli.main(["cache", "prune", "--older-than", "60h", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("2 builds, 20")
    assert cli.main(["cache", "prune", "--max-size", "150kB"]) == 0
    assert "1 build," in capsys.readouterr().out
    assert cli.main(["cache", "prune"]) == 0
    assert capsys.readouterr().out.startswith("0 builds, 0 bytes removed")
    assert cli.main(["cache", "prune", "--all"]) == 0
    assert len(space.stored(folder)) == 0


@pytest.mark.parametrize("words", [["--older-than", "5"], ["--max-size", "huge"], ["--max-size", "-1"]])
def test_wrong_arguments(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that is none is refused with what to write."""
    with pytest.raises(SystemExit):
        cli.main(["cache", "prune", *words])
    assert f"argument {words[0]}: " in capsys.readouterr().err
