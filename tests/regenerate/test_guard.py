"""What no candidate may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pytest_cgins.config import load
from pytest_cgins.regenerate import guard
from pytest_cgins.regenerate.attempt import Guarded
from pytest_cgins.regenerate.methods.memory_file import remember

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
        ("traces/one/manifest.json", "traces/one/manifest.json"),
        ("traces/one/blobs/a.safetensors", "traces/one/blobs/a.safetensors"),
    ],
)
def test_a_change_is_told(project: Path, changed: str, told: str) -> None:
    """Configuration, tests, other sources, headers and packs are guarded, files that are new as well."""
    before = seen(project)
    place = project / changed
    place.write_text(place.read_text() + "# more\n" if place.exists() else "# new\n")
    assert guard.differences(before, seen(project)) == (told,)


def test_what_may_change_and_what_may_not(project: Path) -> None:
    """A kernel's own sources are what a candidate is; a test that is gone, and what times are compared with, are told."""
    before = seen(project)
    write(project, {OWN[0]: "other"})
    assert guard.differences(before, seen(project)) == ()
    assert guard.differences(before, seen(project, "b")) == ("base revision",)
    (project / "tests/test_all.py").unlink()
    assert guard.differences(before, seen(project)) == ("tests/test_all.py",)


def test_what_searches_learn_is_no_goalpost(project: Path) -> None:
    """The memory of methods grows while candidates are tried; all else beside it is guarded."""
    before = seen(project)
    remember(project / ".cgins" / "methods.json", [])
    assert guard.differences(before, seen(project)) == ()
    write(project, {".cgins/calibration.json": "{}", "methods.json": "{}"})
    assert guard.differences(before, seen(project)) == (".cgins/calibration.json", "methods.json")


def test_digests_of_sources_tell_names_from_texts() -> None:
    """Text that moves from one file's end to the next one's name gives another digest."""
    first = guard.digest({"a": "bc", "d": ""})
    assert first != guard.digest({"ab": "c", "d": ""})
    assert first == guard.digest({"d": "", "a": "bc"})


MANY = {
    "cgins.yaml": """\
version: 1
traces: [traces/one]
kernels:
  scale: {op: models.blocks.scale, source: native/scale.cpp, flags: [-Iinclude]}
  shift: {op: models.others.shift, device: cpu, target: 'kernels.shift:shift', sources: [kernels/shift.py]}
""",
    "native/scale.cpp": '#include "factor.h"\n#include <cgins.h>\n',
    "native/factor.h": '#include "more/deep.h"\n',
    "include/more/deep.h": "",
    "native/unused.h": "",
    "kernels/__init__.py": "",
    "kernels/shift.py": "import importlib\nfrom . import table\nfast = importlib.import_module('plugins.fast')\n",
    "kernels/table.py": "from helpers.math import two  # sizes.json\n",
    "kernels/sizes.json": "{}",
    "plugins/fast.py": "",
    "src/helpers/math.py": "two = 2\n",
    "models/__init__.py": "",
    "models/blocks.py": "import models.shapes\n",
    "models/shapes.py": "",
    "models/others.py": "",
    "models/unused.py": "",
    "tests/test_all.py": "",
    "tests/tolerances.json": "{}",
    "pyproject.toml": "",
    "conftest.py": "",
    "traces/one/manifest.json": "{}",
    "record.py": "import models.blocks, kernels.shift\n",
    "train.log": "",
    "results.json": "{}",
    "steps.jsonl": "",
    "notes.txt": "",
    "tools/plot.py": "",
}
OF_BOTH = {"cgins.yaml", "tests/test_all.py", "tests/tolerances.json", "pyproject.toml", "conftest.py"}
OF_BOTH |= {"traces/one/manifest.json", "models/__init__.py"}
GOALPOSTS: dict[str, tuple[str, set[str]]] = {
    "scale": (
        "native/scale.cpp",
        {"native/factor.h", "include/more/deep.h", "models/blocks.py", "models/shapes.py"},
    ),
    "shift": (
        "kernels/shift.py",
        {
            "kernels/__init__.py",
            "kernels/table.py",
            "kernels/sizes.json",
            "plugins/fast.py",
            "src/helpers/math.py",
        }
        | {"models/others.py"},
    ),
}


@pytest.mark.parametrize("make", [committed, write], ids=["repository", "folder"])
@pytest.mark.parametrize("kernel", GOALPOSTS)
def test_goalposts_are_what_a_verdict_depends_on(
    kernel: str, make: Callable[[Path, Mapping[str, str]], Path], tmp_path: Path
) -> None:
    """Of all files of a project, changed at once: packs, settings, tests, and what this kernel and its op read.

    Scripts, logs, results and the files of other kernels and ops are none; where there is no git as well.
    """
    folder = make(tmp_path, MANY)
    config = load(folder / "cgins.yaml")
    own, wanted = GOALPOSTS[kernel]
    texts = {own: MANY[own]}
    before = guard.guarded(config, folder, [own], "")
    for name, text in MANY.items():
        (folder / name).write_text(text + "\n")
    after = guard.guarded(config, folder, [own], "")
    entry = next(one for one in config.kernels if one.name == kernel)
    kernels = replace(config, kernels=(entry,))
    changed, known = guard.differences(before, after), {*before.files, *after.files}
    told = guard.relevant_changes(changed, known, texts, config=config, top=folder, kernels=kernels)
    assert set(told) == OF_BOTH | wanted
    assert {"record.py", "results.json", "steps.jsonl", "notes.txt", "native/unused.h"} <= set(changed)


def test_a_goalpost_that_only_the_candidate_reads(tmp_path: Path) -> None:
    """A header that its incumbent did without counts for the candidate that includes it, new or gone."""
    folder = committed(tmp_path, MANY)
    config = load(folder / "cgins.yaml")
    candidate, incumbent = {"native/scale.cpp": '#include "unused.h"\n'}, {"native/scale.cpp": ""}
    files = ["native/unused.h", "record.py"]
    goalposts = partial(guard.relevant_changes, files, files, config=config, top=folder, kernels=config)
    assert goalposts(incumbent) == ()
    assert goalposts(incumbent, candidate) == ("native/unused.h",)
    (folder / "native/unused.h").unlink()
    assert goalposts(candidate) == ("native/unused.h",)
