"""The benchmark of regeneration: its bugs fit the example project, and its project can be carried elsewhere."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "benchmarks" / "regenerate"))

import project as benchmark_project
from bugs import bugs

from pytest_cgins import config as configuration

# By its file: `regenerate` is the package of other tests.
GENERATED = runpy.run_path(str(Path(benchmark_project.__file__).with_name("regenerate.py")))["GENERATED"]


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def test_each_bug_is_in_a_source_of_its_own_kernel(device: str, tmp_path: Path) -> None:
    """Ten kernels of the example are broken, each by edits that fit, of a source that the kernel shares with nobody."""
    kernels = tmp_path / "kernels"
    shutil.copytree(benchmark_project.EXAMPLE / "kernels", kernels)
    loaded = configuration.load(benchmark_project.EXAMPLE / "cgins.yaml")
    planted = bugs(device)
    assert len({bug.target for bug in planted}) == 10
    for bug in planted:
        bug.plant(tmp_path)
        entry = next(one for one in loaded.kernels if one.name == bug.kernel)
        wanted = (bug.implementation, bug.device)
        implementation = next(one for one in entry.implementations if (one.name, one.device) == wanted)
        assert [str(file.relative_to(loaded.root)) for file in implementation.sources] == [bug.file]
        assert (tmp_path / bug.file).read_text() != (loaded.root / bug.file).read_text()


def test_an_edit_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """A source that was rewritten since the bug was written down is an error with the bug's name."""
    bug = bugs("cpu")[0]
    (tmp_path / bug.file).parent.mkdir()
    (tmp_path / bug.file).write_text("// another kernel\n")
    with pytest.raises(LookupError, match=bug.id):
        bug.plant(tmp_path)


def test_the_ops_that_are_asked_for_have_no_kernel(device: str) -> None:
    """At least five kernels are generated, for ops that the example project has none for."""
    loaded = configuration.load(benchmark_project.EXAMPLE / "cgins.yaml")
    wanted = [op for ops in GENERATED[device].values() for op in ops]
    assert len(set(wanted)) == len(wanted) >= 5
    assert not {entry.op for entry in loaded.kernels} & set(wanted)


def test_the_project_is_the_same_without_its_repository(tmp_path: Path) -> None:
    """A project that was carried without .git has the same commit again, and the bugs as its only edits."""
    work = tmp_path / "here"
    project = work / "project"
    (project / "kernels").mkdir(parents=True)
    (project / ".gitignore").write_text(".cgins/\n")
    bug = bugs("cpu")[0]
    shutil.copy(benchmark_project.EXAMPLE / bug.file, project / bug.file)
    benchmark_project.commit(project)
    bug.plant(project)
    commit = _git(project, "rev-parse", "main")
    shutil.rmtree(project / ".git")
    there = work.rename(tmp_path / "there")
    made = benchmark_project.make(there, [bug], sys.executable)
    assert _git(made, "rev-parse", "HEAD") == commit
    assert _git(made, "status", "--porcelain") == f"M {bug.file}"


def _git(project: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, text=True)
    return done.stdout.strip()
