"""The build cache by itself: what it gives back, what it refuses to load, and what it never loses or removes."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.building.cache import headers, space
from pytest_cgins.building.cache.store import Cache, Entry
from pytest_cgins.core import scratch
from tests.building.processes import holding, python

BASE = "ab" * 32
RECORD = {"kernel": "k", "implementation": "i", "status": 0, "command": "cc", "log": "fine", "seconds": 1.5}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path / "cache")
    cache.usable()
    return cache


def store(
    cache: Cache, base: str = BASE, *, content: bytes = b"library", read: tuple[Path, ...] = (), **record: Any
) -> Entry:
    with cache.work_folder() as folder:
        (folder / "kernel.cubin").write_bytes(content)
        artifact = "" if record.get("status") else "kernel.cubin"
        roots = tuple(dict.fromkeys(file.parent for file in read))
        return cache.store(
            base, roots, read=read, built=folder, artifact=artifact, record={**RECORD, **record}
        )


def test_artifact_keeps_its_name(cache: Cache) -> None:
    """The entry says where the artifact is, whatever it is called, and what its build printed and took."""
    entry = store(cache)
    assert entry == cache.lookup(BASE, ())
    assert entry.artifact is not None
    assert (entry.artifact.name, entry.artifact.read_bytes()) == ("kernel.cubin", b"library")
    assert (entry.status, entry.log, entry.command, entry.seconds) == (0, "fine", "cc", 1.5)


@pytest.mark.exam
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2), st.integers(0, 10**6 - 1), st.integers(0, 7))
def test_a_flipped_bit_is_never_loaded(
    tmp_path_factory: pytest.TempPathFactory, which: int, place: int, bit: int
) -> None:
    """A bit that changes anywhere in an entry or its manifest costs a build, or changes nothing."""
    cache = Cache(tmp_path_factory.mktemp("flip") / "cache")
    entry = store(cache)
    files = sorted(file for file in cache.folder.rglob("*") if file.suffix in (".json", ".cubin"))
    assert len(files) == 3
    content = bytearray(files[which].read_bytes())
    content[len(content) * place // 10**6] ^= 1 << bit
    files[which].write_bytes(content)
    again = cache.lookup(BASE, ())
    assert again in (None, entry)
    if again is not None:
        assert again.artifact is not None
        assert again.artifact.read_bytes() == b"library"
    rebuilt = store(cache)
    assert rebuilt == entry == cache.lookup(BASE, ())


def test_record_of_another_key_is_not_loaded(cache: Cache) -> None:
    """A whole entry in the place of another is not taken for it."""
    first, second = store(cache), store(cache, "cd" * 32, content=b"other")
    shutil.rmtree(cache.folder_of(first.key))
    shutil.copytree(cache.folder_of(second.key), cache.folder_of(first.key))
    assert cache.lookup(BASE, ()) is None


def test_header_that_shadows_another_is_noticed(cache: Cache, tmp_path: Path) -> None:
    """A new file that an include may now find first is another build; one of another name is not."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (second / "deep").mkdir(parents=True)
    (second / "deep" / "own.h").write_text("1")
    roots = (first, second)
    with cache.work_folder() as folder:
        (folder / "a.so").touch()
        cache.store(
            BASE, roots, read=[second / "deep" / "own.h"], built=folder, artifact="a.so", record=RECORD
        )
    (first / "unrelated.h").touch()
    assert cache.lookup(BASE, roots) is not None
    (first / "own.h").touch()
    assert cache.lookup(BASE, roots) is None
    (first / "own.h").unlink()
    (first / "deep").mkdir()
    assert cache.lookup(BASE, roots) is not None
    (first / "deep" / "own.h").touch()
    assert cache.lookup(BASE, roots) is None


@pytest.mark.exam
def test_a_header_is_read_again_when_it_may_have_changed(cache: Cache, tmp_path: Path) -> None:
    """Headers with unchanged size, inode and times are not read; content decides as soon as one differs."""
    header = tmp_path / "h" / "own.h"
    header.parent.mkdir()
    header.write_text("1")
    entry = store(cache, read=(header,))
    stat = cache.folder / "manifests" / f"{BASE}.stat"
    assert cache.lookup(BASE, (header.parent,)) == entry
    assert not stat.exists()  # too young: it may change again within the clock's grain
    wait = headers.RACY_S + 0.1
    time.sleep(wait)
    assert cache.lookup(BASE, (header.parent,)) == entry
    remembered = stat.read_bytes()
    os.utime(header)
    assert cache.lookup(BASE, (header.parent,)) == entry
    header.write_text("2")
    assert cache.lookup(BASE, (header.parent,)) is None
    header.write_text("1")
    assert cache.lookup(BASE, (header.parent,)) == entry
    assert stat.read_bytes() == remembered


def test_headers_of_a_moved_project_or_environment_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of headers hold no absolute path below the project, the toolkit and the Python environment."""
    environment = headers.toolchain.homes()["python"]
    roots = (tmp_path, tmp_path / "include", tmp_path)
    files = ["include/a/b.h", "c.h", str(environment / "nvidia" / "x.h"), "/usr/include/stdio.h"]
    names = ["1:a/b.h", "0:c.h", "python:nvidia/x.h", "/usr/include/stdio.h"]
    assert headers.portable([tmp_path / file for file in files], roots) == names
    home = tmp_path / "toolkit"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").write_text("")
    (home / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert headers.portable([home / "bin/../include/cuda.h"], ()) == ["cuda:bin/../include/cuda.h"]


def test_durations_outlive_builds(cache: Cache) -> None:
    """The last build time of an implementation is there when its builds are gone, and a damaged one is none."""
    assert cache.last_seconds("k/i") is None
    cache.keep_seconds("k/i", 3.25)
    cache.keep_seconds("k/j", 1.0)
    store(cache)
    space.prune(cache.folder, everything=True)
    assert cache.last_seconds("k/i") == 3.25
    for file in (cache.folder / "durations").iterdir():
        file.write_text("x")
    assert cache.last_seconds("k/i") is None


BUILDER = """
import sys, time
from pathlib import Path
from pytest_cgins.building.cache.store import Cache
with Cache(Path(sys.argv[1])).work_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_work_of_a_killed_builder_is_removed(cache: Cache) -> None:
    """The folder of a builder that was killed goes with the next build, that of a living one stays."""
    with holding(BUILDER, cache.folder) as (killed, one), holding(BUILDER, cache.folder) as (_, other):
        killed.kill()
        killed.wait()
        with cache.work_folder() as own:
            assert [Path(folder).is_dir() for folder in (own, one, other)] == [True, False, True]
    assert not list((cache.folder / "work").iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_cgins.building.cache.store import Cache
cache, moment, left = Cache(Path(sys.argv[1])), int(sys.argv[2]), 0
def count(event, arguments):
    global left
    if str(cache.folder) in str(arguments) or event.startswith(("fcntl", "shutil")):
        left += 1
        if left == moment:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
cache.usable()
with cache.work_folder() as folder:
    (folder / "kernel.so").write_bytes(b"")
"""


@pytest.mark.exam
def test_nothing_is_left_of_a_builder_killed_between_any_two_steps(cache: Cache) -> None:
    """Before each call that opens, locks, makes or removes something: the next build clears all of it."""
    for moment in range(1, 100):
        if python(KILLED, cache.folder, moment, check=False).returncode == 0:
            break
        with cache.work_folder():
            pass
        assert os.listdir(cache.folder / "work") == [], moment  # noqa: PTH208
    assert moment > 10


@pytest.mark.exam
def test_clearing_beside_builders_takes_nobodys_work(cache: Cache) -> None:
    """Many that begin, end and clear at once: each has its folder until its own end, and nothing is left."""

    def build(_: int) -> None:
        with cache.work_folder() as folder:
            (folder / "kernel.so").write_bytes(b"")
            scratch.sweep(cache.folder / "work")
            assert (folder / "kernel.so").is_file()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(build, range(400)))
    assert not list((cache.folder / "work").iterdir())


def test_a_log_is_told_with_the_paths_of_who_asks(cache: Cache, tmp_path: Path) -> None:
    """A refusal that was met in one checkout names the files of the other in which it is met again."""
    here, there = tmp_path / "here", tmp_path / "there"
    with cache.work_folder() as folder:
        first = cache.store(
            BASE, (here,), read=[], built=folder, artifact="",
            record={**RECORD, "status": 1, "log": f"{here}/a.cu(3): error: no"},
        )  # fmt: skip
    assert first.log == f"{here}/a.cu(3): error: no"
    again = cache.lookup(BASE, (there,))
    assert again is not None
    assert (again.artifact, again.status, again.log) == (None, 1, f"{there}/a.cu(3): error: no")
