"""Collection: names, -k, -m, arguments, devices, errors. Nothing is evaluated here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

COLLECT = ("--cgins", "--collect-only", "-q")


def test_names_are_kernel_implementation_pack_signature(project: Path, run: Callable[..., Run]) -> None:
    """Node names have four parts and nothing that -k or a shell would trip over."""
    nodes = run(project, *COLLECT).nodes()
    assert len(nodes) == 14
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+/tiny/f32-[\dx]+-[0-9a-f]+", name) for name in nodes), nodes
    assert len(set(nodes)) == 14


@pytest.mark.parametrize(
    ("options", "implementations"),
    [
        (["-k", "wrong or scaled"], {"cpu-wrong", "cpu-python"}),
        (["-k", "functional.threshold"], {"cpu-cpp"}),
        (["-k", "relu and not cpu"], {"cuda"}),
        (["-m", "cgins", "-k", "tiny and threshold"], {"cpu-cpp"}),
        (["-m", "not cgins"], set()),
        (["--cgins-device=cuda"], {"cuda"}),
        (
            ["--cgins-device=cpu", "-k", "relu"],
            {"cpu-right", "cpu-wrong", "cpu-crash", "cpu-refuse", "cpu-broken"},
        ),
    ],
)
def test_selection(
    project: Path, run: Callable[..., Run], options: list[str], implementations: set[str]
) -> None:
    """-k matches kernel, implementation, pack and op; -m cgins is all cases; a device leaves its own."""
    found = run(project, *COLLECT, *options)
    assert {name.split("/")[1] for name in found.nodes()} == implementations, found.out


@pytest.mark.exam
def test_file_and_node_as_arguments(project: Path, run: Callable[..., Run]) -> None:
    """A cgins.yaml, or one node of it, can be named on the command line from another folder."""
    node = run(project, *COLLECT).nodes()[3]
    one = run(project.parent, *COLLECT, f"project/cgins.yaml::{node}", "--rootdir=project")
    assert one.nodes() == [node]
    everything = run(project.parent, *COLLECT, "project/cgins.yaml", "--rootdir=project")
    assert len(everything.nodes()) == 14


def test_several_files_in_one_session(project: Path, run: Callable[..., Run]) -> None:
    """Each cgins.yaml below the folder brings its own cases."""
    shutil.copytree(project, project / "second", ignore=lambda *_: {"second", "pytest.ini"})
    lines = run(project, *COLLECT).lines
    assert sum(line.startswith("cgins.yaml::") for line in lines) == 14
    assert sum(line.startswith("second/cgins.yaml::") for line in lines) == 14


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("threshold:\n    op", "threshold:\n    opp", r"cgins\.yaml:\d+: .*opp.*"),
        ("traces/tiny]", "traces/tinny]", r"cgins\.yaml:2: .*traces/tinny"),
        (
            "functional.threshold",
            "functional.gelu",
            r'cgins\.yaml:\d+: kernel "threshold" replaces torch\.nn\.functional\.gelu',
        ),
    ],
)
def test_mistakes_are_collection_errors(
    project: Path, run: Callable[..., Run], before: str, after: str, message: str
) -> None:
    """A wrong file is one error with file and line, without a traceback: exit 2."""
    file = project / "cgins.yaml"
    file.write_text(file.read_text().replace(before, after))
    found = run(project, "--cgins")
    assert found.code == 2
    assert re.search(message, found.out), found.out
    assert "Traceback" not in found.out
    assert "pytest_cgins/" not in found.out


@pytest.mark.exam
def test_corrupt_pack_is_a_collection_error(project: Path, run: Callable[..., Run]) -> None:
    """A manifest cut in half is named, and nothing is run."""
    manifest = project / "traces" / "tiny" / "manifest.json"
    manifest.write_text(manifest.read_text()[:100])
    found = run(project, "--cgins")
    assert found.code == 2
    assert "manifest.json" in found.out
    assert "Traceback" not in found.out


def test_collecting_imports_neither_torch_nor_numpy(project: Path, run: Callable[..., Run]) -> None:
    """The pytest process stays light: torch is for workers."""
    (project / "conftest.py").write_text(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    heavy = [name for name in ('torch', 'numpy', 'openai', 'triton') if name in sys.modules]\n"
        "    print('HEAVY', heavy)\n"
    )
    found = run(project, *COLLECT)
    assert "HEAVY []" in found.out
    assert len(found.nodes()) == 14


def test_collecting_keeps_the_last_report(project: Path, run: Callable[..., Run]) -> None:
    """--collect-only finds nothing and writes no report over that of a run."""
    (project / "report.json").write_text("of a run")
    assert run(project, *COLLECT, "--cgins-json=report.json").code == 0
    assert (project / "report.json").read_text() == "of a run"


@pytest.mark.exam
def test_seed_is_told_and_checked(project: Path, run: Callable[..., Run]) -> None:
    """The header has the seed, a new one each run; a seed that is none is a usage error."""
    seeds = {
        re.search(r"^cgins: seed (\d+)$", run(project, "--cgins", "--collect-only").out, re.MULTILINE)[1]
        for _ in range(2)
    }
    assert len(seeds) == 2
    assert "cgins: seed 12" in run(project, "--cgins", "--collect-only", "--cgins-seed=12").out
    for option in ("--cgins-seed=-1", "--cgins-seed=x", "--cgins-timeout=0", "--cgins-timeout=nan"):
        refused = run(project, "--cgins", option)
        assert refused.code == 4
        assert option.partition("=")[0] in refused.out
