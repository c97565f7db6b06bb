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

from pytest_cgins.regenerate.guard import digest_of_sources
from pytest_cgins.regenerate.journal import Journal
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
        return {
            "log": self.log,
            "env": {scripted.MARK: self.mark, "TMPDIR": str(self._temporary), **env},
        }

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

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
        return sorted(one.name for one in self._temporary.iterdir())


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    for pid in scripted.processes(made.mark):
        os.kill(pid, signal.SIGKILL)


def run_of(project: Path) -> Path | None:
    """The folder of the one run, once there is one."""
    return next((file.parent for file in (project / ".cgins/runs").glob("*/run.json")), None)


def told(project: Path, line: str) -> bool:
    """Whether the run's log has a line."""
    run = run_of(project)
    return run is not None and (run / "events.log").exists() and line in (run / "events.log").read_text()


@pytest.mark.slow
def test_killed_three_times(project: Path, script: scripted.Script, processes: Processes) -> None:
    """Killed with an answer in flight, while a candidate is checked, and before the proposal: it ends as if undisturbed."""
    script.go_on.clear()
    process = scripted.begin(project, ["relu"], **processes.more())
    assert scripted.until(lambda: bool(script.asked), 60.0), processes.said
    processes.kill(process)
    assert processes.are_gone(but_courier=True)
    script.go_on.set()

    process = scripted.resume(project, **processes.more())
    assert scripted.until(lambda: told(project, f"{TARGET}/attempt-02/generator: answered"), 60.0)
    processes.kill(process)
    assert processes.are_gone(but_courier=True)

    process = scripted.resume(project, **processes.more(**{scripted.DIE: "accepted"}))
    assert process.wait(60.0) == -signal.SIGKILL, processes.said
    run = run_of(project)
    assert run is not None
    assert (run / TARGET / "result.json").exists()
    assert not (run / "proposals").exists()
    assert processes.are_gone(but_courier=True)

    for _ in range(2):  # Whoever resumes what is done is told so.
        assert scripted.resume(project, **processes.more()).wait(60.0) == 0, processes.said
    assert "is done" in processes.said.splitlines()[-1]
    assert processes.are_gone()
    assert [name for name in processes.left() if name.startswith("cgins-")] == []
    _ended_as_undisturbed(run, script)


def _ended_as_undisturbed(run: Path, script: scripted.Script) -> None:
    journal = Journal.resume(run)
    attempts = journal.attempts(journal.record.targets[0])
    journal.close()
    assert [one.outcome for one in attempts] == ["build-error", "failed", "accepted"]
    drafts = [{PATH: scripted.draft("relu", number)} for number in (1, 2, 3)]
    assert [one.digest for one in attempts] == [digest_of_sources(draft) for draft in drafts]
    assert [model for _, model in script.asked] == ["writer", "adviser", "writer", "adviser", "writer"]
    assert script.repeated == 0
    assert not list(run.rglob("lost.json"))
    assert not list(run.rglob(".*"))
    proposal = run / "proposals" / TARGET
    assert (proposal / "files" / PATH).read_text() == drafts[2][PATH]
    about = json.loads((proposal / "proposal.json").read_text())
    answers = [answer for _, answer in journal.answered()]
    assert about["cost"]["prompt_tokens"] == sum(one.usage.prompt_tokens for one in answers)
    assert [one["outcome"] for one in about["attempts"]] == [one.outcome for one in attempts]


@pytest.mark.slow
def test_ctrl_c_in_pytest(project: Path, script: scripted.Script, processes: Processes) -> None:
    """Ctrl-C ends pytest with 2 and says how to go on; the answer that was under way is not paid twice."""
    script.first = 3
    script.go_on.clear()
    command = ["-m", "pytest", "-p", "pytest_cgins.plugin", "-p", "no:cacheprovider", "--cgins", "-k", "relu"]
    command += ["--cgins-no-timing", "--cgins-regenerate"]
    process = scripted.started(
        [sys.executable, *command], project, **processes.more(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    )
    assert scripted.until(lambda: bool(script.asked), 60.0), processes.said
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30.0) == pytest.ExitCode.INTERRUPTED, processes.said
    run = run_of(project)
    assert run is not None
    assert f"interrupted; all that was done is kept. To go on: cgins runs resume {run.name}" in processes.said
    assert "Traceback" not in processes.said
    assert processes.are_gone(but_courier=True)
    assert [name for name in processes.left() if name.startswith("cgins-")] == []
    script.go_on.set()

    assert scripted.resume(project, run.name, **processes.more()).wait(60.0) == 0, processes.said
    assert len(script.asked) == 1
    assert (run / TARGET / "final" / PATH).read_text() == scripted.draft("relu", 3)
    assert (run / "proposals" / TARGET / "patch.diff").is_file()
    assert processes.are_gone()
