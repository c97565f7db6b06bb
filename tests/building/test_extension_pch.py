"""The precompiled header: made when it pays, once, and never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_cgins.building.builders import extension_pch
from pytest_cgins.building.cache import space
from pytest_cgins.building.compilers.toolchain import cxx
from tests.building.processes import python

FILES = {
    "first.h": "#pragma once\n#include <below/second.h>\n",
    "below/second.h": "inline int two() { return 2; }\n",
}


def _folder(
    store: Path, files: dict[str, str] = FILES, identity: str = "1", flags: Sequence[str] = ()
) -> Path | None:
    return extension_pch.folder_for(
        store / "torch",
        cxx(),
        ["-O1", *flags],
        "first.h",
        files=files,
        identity=identity,
        deadline=time.monotonic() + 60,
    )


def test_made_by_the_third_build(tmp_path: Path) -> None:
    """Two builds do without; the third makes the header, and a compilation takes it."""
    assert [_folder(tmp_path), _folder(tmp_path)] == [None, None]
    place = _folder(tmp_path)
    assert place is not None
    made = (place / "first.h.gch").stat().st_mtime_ns
    assert _folder(tmp_path) == place
    assert (place / "first.h.gch").stat().st_mtime_ns == made
    (place / "below/second.h").unlink()  # so that only the precompiled one can be what is read
    (tmp_path / "k.cpp").write_text("#include <first.h>\nint main() { return two() - 2; }\n")
    command = [*cxx(), "-O1", "-Winvalid-pch", "-Werror", f"-isystem{place}", "k.cpp", "-o", "k"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "k"], check=True)


def test_its_own_headers_come_first(tmp_path: Path) -> None:
    """Of two headers of one name it has its own, not that of a folder in the flags, as what includes it has."""
    (tmp_path / "others/below").mkdir(parents=True)
    (tmp_path / "others/below/second.h").write_text("#error the other one\n")
    assert [_folder(tmp_path, flags=[f"-isystem{tmp_path}/others"]) for _ in range(3)][2] is not None


def test_other_tools_and_headers_have_their_own(tmp_path: Path) -> None:
    """Another compiler or torch, or another text, is another header."""
    for _ in range(2):
        _folder(tmp_path)
    assert _folder(tmp_path) is not None
    assert _folder(tmp_path, identity="2") is None
    assert _folder(tmp_path, {**FILES, "below/second.h": "\n"}) is None


def _third(store: Path, files: dict[str, str] = FILES) -> Path | None:
    return [_folder(store, files) for _ in range(3)][2]


def test_a_failure_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that the compiler refuses is tried once, even if it would take it later."""
    broken = {"first.h": "#include <later.h>\n"}
    assert _third(tmp_path, broken) is None
    (tmp_path / "later.h").write_text("")
    monkeypatch.setenv("CPATH", str(tmp_path))
    assert _folder(tmp_path, broken) is None
    (refused,) = (path for path in (tmp_path / "torch").iterdir() if path.is_dir())
    shutil.rmtree(refused)
    assert _folder(tmp_path, broken) == refused


def test_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    """A header that was cut short is not used, and what a killed maker left goes."""
    place = _third(tmp_path)
    assert place is not None
    made = place / "first.h.gch"
    nbytes = made.stat().st_size
    os.truncate(made, nbytes // 2)
    left = place.with_name(f"{place.name}.0badcafe")
    left.mkdir()
    assert _folder(tmp_path) == place
    assert made.stat().st_size > 0.9 * nbytes
    assert not left.exists()


def test_it_is_a_build_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed with its size, counts for the bound, and goes with the rest."""
    place = _third(tmp_path)
    assert place is not None
    (stored,) = space.stored(tmp_path)
    assert (stored.folder, stored.name) == (place, "torch's headers, precompiled")
    assert stored.nbytes > (place / "first.h.gch").stat().st_size
    assert sum(map(int, (tmp_path / "size").read_text().split())) == stored.nbytes
    assert space.prune(tmp_path, everything=True) == [stored]
    assert not [path for path in (tmp_path / "torch").iterdir() if path.suffix != ".lock"]
    monkeypatch.setenv("CGINS_CACHE_SIZE", "1KB")
    assert _third(tmp_path) is None, "larger than the whole cache may be"
    assert space.stored(tmp_path) == []


def test_made_once_by_many_at_once(tmp_path: Path) -> None:
    """Threads and processes that want it at once wait for the one that makes it."""
    for _ in range(2):
        _folder(tmp_path)
    script = (
        "import sys, time; from pathlib import Path; from pytest_cgins.building.builders import extension_pch; "
        "from pytest_cgins.building.compilers import toolchain\n"
        f"print(extension_pch.folder_for(Path(sys.argv[1]), toolchain.cxx(), ['-O1'], 'first.h', files={FILES!r}, "
        "identity='1', deadline=time.monotonic() + 60))"
    )
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: python(script, tmp_path / "torch").stdout.strip(), range(3)))
    assert len(set(runs)) == 1
    assert Path(runs[0]).is_dir()
    assert len([path for path in (tmp_path / "torch").iterdir() if path.is_dir()]) == 1
