"""A run that is killed or interrupted goes on where it was: nothing is paid twice, nothing done is done again.

`benchmarks/regenerate_killed.py` kills at random moments, and holds runs against an undisturbed one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cgins.regenerate.guard import digest
from pytest_cgins.regenerate.journal.journal import Journal
from tests.regenerate import scripted
from tests.regenerate.llm_server import LlmServer

TARGET = "relu-cpu-cpp"
PATH = scripted.KERNELS["relu"][0]


@pytest.fixture(scope="module")
def recorded(made_once: Callable[..., Path]) -> Path:
    """The scripted project with its trace pack."""
    return made_once("scripted", scripted.recorded)


@pytest.fixture
def script() -> scripted.Script:
    return scripted.Script()


@pytest.fixture
def project(recorded: Path, tmp_path: Path, script: scripted.Script) -> Iterator[Path]:
    """The project, beside a server that plays the script."""
    with LlmServer(script) as server:
        yield scripted.project(recorded, tmp_path / "project", server.base_url)


class Processes:
    """Those of one test, and what they print."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.mark = f"{os.getpid()}-{folder.name}"
        self._temporary = folder / "temporary"
        self._temporary.mkdir()

    def more(self, **env: str) -> dict[str, object]:
        """What starts them need to know."""
        return {"log": self.log, "env": {scripted.MARK: self.mark, "TMPDIR": str(self._temporary), **env}}

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill_when(self, line: str, process: subprocess.Popen[bytes]) -> None:
        """Kill a part of a run once it says something that no part said before; its workers are to notice."""
        known = self.said.count(line)
        assert scripted.until(lambda: self.said.count(line) > known, 90.0), self.said
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert self.are_gone(but_courier=True)

    def are_gone(self, but_courier: bool = False) -> bool:
        """Whether they end by themselves, soon."""
        return scripted.until(
            lambda: (
                not any(
                    not (but_courier and scripted.is_courier(one))
                    for one in scripted.processes(self.mark).values()
                )
            ),
            5.0,
        )

    def left(self) -> list[str]:
        """Temporary folders."""
        return sorted(one.name for one in self._temporary.glob("cgins-*"))


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    for pid in scripted.processes(made.mark):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.exam
def test_interrupted_and_killed_three_times(
    project: Path, script: scripted.Script, processes: Processes
) -> None:
    """Ctrl-C, then killed with the answer in flight, while a candidate is checked, and before the proposal: all is kept."""
    run = _interrupted(project, script, processes)

    process = scripted.resume(project, run.name, **processes.more())
    processes.kill_when("attempt 1 of 5: asking the generator", process)
    script.go_on.set()

    process = scripted.resume(project, **processes.more())
    processes.kill_when("attempt 1 of 5: building and checking", process)
    assert not (run / TARGET / "attempt-01" / "attempt.json").exists()

    process = scripted.resume(project, **processes.more(**{scripted.DIE: "accepted"}))
    assert process.wait(90.0) == -signal.SIGKILL, processes.said
    assert (run / TARGET / "result.json").exists()
    assert not (run / "proposals").exists()
    assert processes.are_gone(but_courier=True)

    for _ in range(2):  # Whoever resumes what is done is told so.
        assert scripted.resume(project, **processes.more()).wait(90.0) == 0, processes.said
    # The last line says why no pull request was opened.
    assert f"run {run.name} is done" in processes.said.splitlines()[-2]
    assert processes.are_gone()
    _ended_as_undisturbed(run, script)


def _interrupted(project: Path, script: scripted.Script, processes: Processes) -> Path:
    """The run of a pytest that ended with Ctrl-C while an answer was under way."""
    script.first = 2
    script.go_on.clear()
    command = [sys.executable, "-m", "pytest", "-p", "pytest_cgins.plugin", "-p", "no:cacheprovider"]
    command += ["--cgins", "-k", "relu", "--cgins-no-timing", "--cgins-regenerate"]
    process = scripted.started(command, project, **processes.more(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"))
    assert scripted.until(lambda: bool(script.asked), 90.0), processes.said
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(90.0) == pytest.ExitCode.INTERRUPTED, processes.said
    (run,) = (file.parent for file in project.glob(".cgins/runs/*/run.json"))
    assert (
        f"interrupted; all that was done is kept. To go on: cgins runs resume {run.name}\n" in processes.said
    )
    assert "Traceback" not in processes.said
    assert processes.are_gone(but_courier=True)
    assert processes.left() == []
    return run


def _ended_as_undisturbed(run: Path, script: scripted.Script) -> None:
    journal = Journal.resume(run)
    journal.close()
    attempts = journal.attempts(journal.record.targets[0])
    assert [one.outcome for one in attempts] == ["failed", "accepted"]
    drafts = [{PATH: scripted.draft("relu", number)} for number in (2, 3)]
    assert [one.digest for one in attempts] == [digest(draft) for draft in drafts]
    assert [model for _, model in script.asked] == ["writer", "adviser", "writer"]
    assert script.repeated == 0
    assert not list(run.rglob("lost.json"))
    assert not list(run.rglob(".*"))
    proposal = run / "proposals" / TARGET
    assert (proposal / "files" / PATH).read_text() == drafts[1][PATH]
    about = json.loads((proposal / "proposal.json").read_text())
    answers = [answer for _, answer in journal.answered()]
    assert about["cost"]["prompt_tokens"] == sum(one.usage.prompt_tokens for one in answers)
    assert [one["outcome"] for one in about["attempts"]] == ["failed", "accepted"]
