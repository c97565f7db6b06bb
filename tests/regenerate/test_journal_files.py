"""What a kill leaves behind: half-written files are swept, and nothing that is whole or still being written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.core import scratch
from pytest_cgins.core.errors import JournalError, RegenerateError
from pytest_cgins.regenerate import run, targets
from pytest_cgins.regenerate.journal import files
from pytest_cgins.regenerate.journal.journal import Journal, runs_in
from tests.regenerate import projects

DEAD = 2**22 - 1
"""Of no process, as a rule: the highest number that Linux gives."""


@pytest.fixture
def project(tmp_path: Path) -> Config:
    return configuration.load(projects.committed(tmp_path / "project") / "cgins.yaml")


def begun(project: Config, runs: Path, kernel: str = "scale") -> Journal:
    """A run of the C++ kernel, laid out."""
    entry = project.kernels[0]
    target = targets.target_of(entry, entry.implementations[0], "repair")
    record = {"baseline": NONE, "timing": False}
    return run.begin(
        project, LlmSettings(provider="replay", path=runs, runs=runs), [target], (), record=record
    )


def test_it_is_a_run_once_it_is_laid_out(
    project: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose beginning fails leaves nothing; one that is laid out can be resumed once it is let go."""

    def fail(*_: object) -> None:
        raise RegenerateError("no", remedy="none")

    runs = tmp_path / "runs"
    with monkeypatch.context() as patched:
        patched.setattr(run.guard, "guarded", fail)
        with pytest.raises(RegenerateError, match="no"):
            begun(project, runs)
    assert [one.name for one in runs.iterdir()] == [".gitignore"]
    with begun(project, runs) as journal:
        assert runs_in(runs) == (journal.folder,)
        with pytest.raises(JournalError, match="is in use by another process"):
            Journal.resume(journal.folder)
    with Journal.resume(journal.folder) as again:
        assert again.incumbent(again.record.targets[0]) == journal.incumbent(journal.record.targets[0])


def test_killed_before_it_is_laid_out(tmp_path: Path) -> None:
    """What was to be a run is shown by no command: it has asked nobody."""
    (tmp_path / "20261122-073100-5f3a" / "softmax-cpu-cpp").mkdir(parents=True)
    assert runs_in(tmp_path) == ()
    with pytest.raises(JournalError, match=r"has no run\.json"):
        Journal.resume(tmp_path / "20261122-073100-5f3a")


@pytest.mark.parametrize("path", ["tests/test_all.py", "native/scale.cpp"])
def test_the_project_changed_meanwhile(project: Config, tmp_path: Path, path: str) -> None:
    """A run is not resumed on other files than it began with: no candidate is blamed for what a person did."""
    llm = LlmSettings(provider="replay", path=tmp_path, runs=tmp_path / "runs")
    with begun(project, llm.runs) as journal:
        file = project.root / path
        file.write_text(file.read_text() + "\n")
        (result,) = run.Run(journal, project, llm, run.Conditions(sandbox=None)).work().results
        assert (result.state, result.why) == ("stopped", f"changed since the run began: {path}")
        assert result.remedy.startswith("undo that and resume the run")
        assert not list(journal.folder.rglob("attempt-*"))


def test_resuming_sweeps(project: Config, tmp_path: Path) -> None:
    """Folders and files that were being written are removed; a courier that lives keeps its own."""
    journal = begun(project, tmp_path / "runs")
    journal.close()
    place = journal.folder / journal.record.targets[0].name / "attempt-01" / "generator"
    whole = [place / "answer.json", place / "request.lock", place.parent / "source" / ".hidden.h"]
    living = place / f".answer.json.{os.getpid()}.1234.part"
    torn = [
        journal.folder / ".run.json.x2",
        place.parents[1] / ".incumbent-ab12" / "kernels.cpp",
        place.parent / ".source-ab12" / "deep" / "kernels.cpp",
        place.parent / ".attempt.json.ab12",
        place / f".answer.json.{DEAD}.1234.part",
        journal.folder / "proposals" / ".scale-cpu-cpp-ab12" / "new" / "patch.diff",
    ]
    for file in (*whole, living, *torn):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{")
    Journal.resume(journal.folder).close()
    assert all(file.exists() for file in (*whole, living))
    assert not [file for file in torn if file.exists()]
    left = [file.name for file in journal.folder.rglob(".*")]
    assert sorted(left) == sorted([living.name, ".hidden.h"])


def test_texts_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What breaks while files are written leaves the old ones, and nothing beside them."""
    files.write_files(tmp_path / "source", {"a.cpp": "one\r\n", "b/c.h": "two"})

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        files.write_files(tmp_path / "source", {"a.cpp": "other"})
    with pytest.raises(OSError, match="No space"):
        files.write_text(tmp_path / "prompt.md", "words")
    assert files.read_files(tmp_path / "source") == {"a.cpp": "one\r\n", "b/c.h": "two"}
    assert [one.name for one in tmp_path.iterdir()] == ["source"]


HOLDER = """
import os, signal
from pytest_cgins.core import scratch
with scratch.folder() as folder:
    (folder / "copy").mkdir()
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_temporary_folders_of_the_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a process that was killed goes with the next one, that of one that lives stays."""
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    dead = Path(done.stdout.strip())
    assert dead.parent == tmp_path
    assert (dead / "copy").is_dir()
    with scratch.folder() as first, scratch.folder() as second:
        assert not dead.exists()
        assert first.is_dir()
        assert second.is_dir()
    assert not list(tmp_path.iterdir())
