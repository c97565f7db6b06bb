"""What no candidate may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.config import load
from pytest_cgins.methods.memory_file import remember
from pytest_cgins.regenerate import guard
from pytest_cgins.regenerate.model import Guarded

from .projects import FILES, YAML, committed, write

OWN = ("native/scale.cpp",)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pack = {"traces/one/manifest.json": "{}", "traces/one/blobs/a.safetensors": "gold"}
    return committed(tmp_path, {**FILES, **pack, "cgins.yaml": YAML + "traces: [traces/one]\n"})


def seen(project: Path, base: str = "") -> Guarded:
    return guard.guarded(load(project / "cgins.yaml"), project, OWN, base)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("cgins.yaml", "cgins.yaml"),
        ("tests/test_all.py", "tests/test_all.py"),
        ("tests/test_new.py", "tests/test_new.py"),
        ("native/factor.h", "native/factor.h"),
        ("kernels/scale.py", "kernels/scale.py"),
        ("conftest.py", "conftest.py"),
        ("traces/one/manifest.json", "one:manifest.json"),
        ("traces/one/blobs/a.safetensors", "one:blobs/a.safetensors"),
    ],
)
def test_a_change_is_told(project: Path, changed: str, told: str) -> None:
    """Configuration, tests, other sources, headers and packs are guarded, files that are new as well."""
    before = seen(project)
    place = project / changed
    place.write_text(place.read_text() + "# more\n" if place.exists() else "# new\n")
    assert guard.differences(before, seen(project)) == (told,)


def test_own_sources_may_change(project: Path) -> None:
    """The kernel's own sources are what a candidate is."""
    before = seen(project)
    write(project, {OWN[0]: "other"})
    assert guard.differences(before, seen(project)) == ()


def test_what_searches_learn_is_no_goalpost(project: Path) -> None:
    """The memory of methods grows while candidates are tried; all else beside it is guarded."""
    before = seen(project)
    remember(project / ".cgins" / "methods.json", [])
    assert guard.differences(before, seen(project)) == ()
    write(project, {".cgins/calibration.json": "{}", "methods.json": "{}"})
    assert guard.differences(before, seen(project)) == (".cgins/calibration.json", "methods.json")


def test_a_file_that_is_gone_is_told(project: Path) -> None:
    """Removing a test changes what is guarded."""
    before = seen(project)
    (project / "tests/test_all.py").unlink()
    assert guard.differences(before, seen(project)) == ("tests/test_all.py",)


def test_another_base_revision_is_told(project: Path) -> None:
    """What times are compared with is guarded too."""
    assert guard.differences(seen(project, "a"), seen(project, "b")) == ("base revision",)


def test_digests_of_sources_tell_names_from_texts() -> None:
    """Text that moves from one file's end to the next one's name gives another digest."""
    first = guard.digest_of_sources({"a": "bc", "d": ""})
    assert first != guard.digest_of_sources({"ab": "c", "d": ""})
    assert first == guard.digest_of_sources({"d": "", "a": "bc"})
