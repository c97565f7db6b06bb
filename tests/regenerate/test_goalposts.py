"""Files that people change while a run goes on, and kernels that cannot be proposed: what each target comes to."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.regenerate.attempt import Result
from pytest_cgins.regenerate.journal import journal as journals
from pytest_cgins.regenerate.journal.journal import Journal
from tests.regenerate import scripted
from tests.regenerate.llm_server import LlmServer, Reply
from tests.regenerate.projects import write
from tests.regenerate.test_commands import NEEDS_SANDBOX

UNPROPOSABLE = {
    "relu": ("kernels/größe.cpp", "a name has ASCII letters"),
    "threshold": (".hidden/threshold.cpp", "hidden files and folders"),
}
"""Of kernels, paths that no proposal may have, and what is said of them."""


class Edits:
    """Answers with right kernels; somebody edits the project meanwhile."""

    def __init__(self, edit: Callable[[], None]) -> None:
        self._script = scripted.Script(first=3)
        self._edit = edit
        self.asked: list[str] = []
        """Prompts."""

    def __call__(self, asked: Any) -> Reply:
        self.asked.append("\n".join(message["content"] for message in asked["messages"]))
        self._edit()
        return self._script(asked)


def results(folder: Path) -> dict[str, Result]:
    """What the one run of a project came to, by kernel."""
    (run,) = journals.runs_in(folder / ".cgins" / "runs")
    journal = Journal.read_only(run)
    found = {target.kernel: journal.ended(target) for target in journal.record.targets}
    return {kernel: result for kernel, result in found.items() if result is not None}


def ended(process: subprocess.Popen[bytes]) -> int:
    """Exit code of a command."""
    return process.wait(600)


@pytest.mark.exam
@NEEDS_SANDBOX
def test_targets_stop_by_what_their_verdict_depends_on_and_alone(
    made_once: Callable[..., Path], tmp_path: Path
) -> None:
    """In a folder without git, where logs, scripts and another kernel's source change during the run.

    Kernels whose paths proposals refuse fail before anything is asked. The third one's target is stopped while its op is
    another one and there is a new conftest.py, and exactly these are named; once they are undone, a resumed run accepts the
    same answer, and asks nobody.
    """
    folder, yaml = tmp_path / "project", scripted.YAML
    shutil.copytree(made_once("scripted", scripted.recorded), folder)
    for name, (path, _, _) in scripted.KERNELS.items():
        place = UNPROPOSABLE[name][0] if name in UNPROPOSABLE else path
        write(folder, {place: scripted.draft(name, 0)})
        yaml = yaml.replace(path, place)
    write(folder, {"record.py": scripted.RECORD, "results.json": "{}"})
    other = UNPROPOSABLE["threshold"][0]

    def edit() -> None:
        write(folder, {"record.py": "1\n", "train.log": "1\n", "results.json": "[]", other: "// at work\n"})
        write(folder, {"tiny_ops.py": "# by twos\n" + scripted.OPS, "conftest.py": ""})

    server_says, log = Edits(edit), tmp_path / "log"
    with LlmServer(server_says) as server:
        (folder / "cgins.yaml").write_text(yaml.replace("URL", server.base_url))
        assert ended(scripted.begin(folder, list(scripted.KERNELS), log=log, env={})) == 1
        found = results(folder)
        stopped = found.pop("scaled")
        for kernel, result in found.items():
            path, why = UNPROPOSABLE[kernel]
            assert (result.state, result.attempts) == ("failed", ())
            assert ascii(path) in result.why
            assert why in result.why
            assert result.remedy.endswith("rename the file or folder, in cgins.yaml too")
        assert (stopped.state, stopped.attempts) == ("stopped", ()), log.read_text()
        assert stopped.why == "changed since the run began: conftest.py, tiny_ops.py"
        assert stopped.remedy.startswith("undo that and resume the run")
        assert ended(scripted.resume(folder, log=log, env={})) == 1
        assert results(folder)["scaled"].why == stopped.why

        (folder / "tiny_ops.py").write_text(scripted.OPS)
        (folder / "conftest.py").unlink()
        assert ended(scripted.resume(folder, log=log, env={})) == 1
    assert len(server_says.asked) == 1
    accepted = results(folder)["scaled"]
    assert accepted.state == "accepted", log.read_text()
    assert [one.outcome for one in accepted.attempts] == ["accepted"]
