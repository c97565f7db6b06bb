"""A project with a kernel in a bare repository, a clone of it, a twin of GitHub in front, and proposals."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.cli import main
from pytest_cgins.core.verdict import Status
from pytest_cgins.core.waiting import Wait
from pytest_cgins.regenerate.attempt import Goal
from tests.evaluations import make_evaluation
from tests.pull_request import twin as twins
from tests.pull_request.twin import Twin
from tests.regenerate import proposals

CONFIG = """\
version: 1
traces: [traces]
kernels:
  scale:
    op: torch.nn.functional.gelu
    source: kernels/scale.cpp
  shift:
    op: torch.nn.functional.relu
    source: kernels/shift.cpp
"""
BROKEN, FIXED = "int scale() { return 1; }\n", "int scale() { return 2; }\n"
BETTER = "int scale() { return 3; }\n"
SOURCE = "kernels/scale.cpp"
BRANCH = "cgins/repair/scale-cpu-cpp"
HUMAN = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@team.example"))
}


def git(folder: Path, *arguments: str) -> str:
    """Run git as a person would."""
    environment = {**os.environ, **HUMAN, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, files: Mapping[str, str], *, branch: str = "main", message: str = "Work") -> str:
    """Commit files in a clone and push the branch."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", message)
    git(folder, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository with the project, and a clone of it, made once."""
    place = tmp_path_factory.mktemp("template")
    git(place, "init", "--quiet", "--bare", "--initial-branch=main", "bare.git")
    git(place, "clone", "--quiet", "bare.git", "clone")
    files = {
        "cgins.yaml": CONFIG,
        SOURCE: BROKEN,
        "kernels/shift.cpp": "int shift() { return 0; }\n",
        "tests/test_it.py": "",
        ".github/workflows/ci.yml": "on: push\n",
    }
    commit(place / "clone", files)
    shutil.rmtree(place / "clone")
    git(place, "clone", "--quiet", "bare.git", "clone")
    return place


@dataclass
class Place:
    """A server, two clones of its repository, and proposals."""

    bare: Path
    """The repository on the server."""
    clone: Path
    """The user's."""
    other: Path
    """Another person's."""
    twin: Twin
    proposals: Path
    capture: pytest.CaptureFixture[str]

    def propose(
        self,
        new: Mapping[str, str] | None = None,
        *,
        goal: Goal = "repair",
        name: str = "one",
        message: str = "wrong answer",
        kernel: str = "scale",
        implementation: str = "cpp",
        **changes: Any,
    ) -> Path:
        """Write a proposal, as a run does."""
        names = {"kernel": kernel, "implementation": implementation}
        wrong = make_evaluation(Status.INCORRECT, message=message, **names)
        known: dict[str, Any] = {
            "target": proposals.target(goal=goal, **names),
            "base": {SOURCE: BROKEN},
            "new": new or {SOURCE: FIXED},
            "before": () if goal == "generate" else (wrong,),
            "after": proposals.accepted(make_evaluation(**names)),
            "attempts": [proposals.attempt(1, "accepted", message)],
        }
        proposals.write(self.proposals / name, goal=goal, **known | changes)
        return self.proposals / name

    def better(self, source: str = BETTER, **changes: Any) -> Path:
        """A proposal of a later run for the same kernel."""
        return self.propose({SOURCE: source}, **{"name": "two", "run_id": "run-2"} | changes)

    def stand_on_branch(self, *commit: str) -> None:
        """Have the other person stand on the bot's commit, and commit there without pushing, with options of git's."""
        git(self.other, "fetch", "--quiet", str(self.bare), BRANCH)
        git(self.other, "checkout", "--quiet", "FETCH_HEAD")
        if commit:
            git(self.other, "commit", "--quiet", *commit)

    def push(self, branch: str = BRANCH) -> str:
        """Have the other person push, whatever is there; the commit."""
        git(self.other, "push", "--quiet", "--force", str(self.bare), f"HEAD:refs/heads/{branch}")
        return git(self.other, "rev-parse", "HEAD")

    @property
    def source(self) -> str:
        """The kernel on the bot's branch."""
        return self.show(f"{BRANCH}:{SOURCE}") + "\n"

    def keep(self) -> Callable[[], None]:
        """Keep all that there is on both sides; what is given back brings it back, with a twin that is as new."""
        folder = self.bare.parent
        shutil.copytree(folder, folder.with_suffix(".kept"))
        api = copy.deepcopy(vars(self.twin.api))

        def bring_back() -> None:
            for path in (self.bare, self.clone, self.other, self.proposals):
                shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(folder.with_suffix(".kept"), folder, dirs_exist_ok=True)
            vars(self.twin.api).update(copy.deepcopy(api))
            self.twin.requests.clear()
            self.twin.restart()
            os.chdir(self.clone)

        return bring_back

    def printed(self) -> Any:
        """By this process and its children since the last look."""
        return self.capture.readouterr()

    def open(self, folder: Path | None = None, *options: str) -> int:
        """`cgins pull-request open`."""
        return main(["pull-request", "open", "--proposal", str(folder or self.propose()), *options])

    def tip(self, branch: str) -> str:
        return self.twin.api.tip(branch)

    def show(self, name: str) -> str:
        return git(self.bare, "show", name)

    def changes(self) -> list[int]:
        """Numbers, since the restart, of the requests that may change something, and of the last one."""
        requests = self.twin.requests[-self.twin.count :]
        last = len(requests) - 1
        return [
            number
            for number, request in enumerate(requests)
            if number == last or (request.method != "GET" and "upload-pack" not in request.path)
        ]

    def rest_calls(self, method: str) -> list[Any]:
        return [
            request
            for request in self.twin.requests
            if request.method == method and "/api/v3/" in request.path
        ]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may write, no other variables of GitHub's, and waits that are short."""
    for variable in ("GITHUB_SERVER_URL", "GITHUB_API_URL", "GITHUB_GRAPHQL_URL", "GH_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", twins.WRITER)
    real = time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: real(min(seconds, 0.01)))


@pytest.fixture
def place(
    tmp_path: Path,
    template: Path,
    settled: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Place]:
    """A clone in which the test stands, of a repository that the twin serves."""
    folder = tmp_path / "place"
    bare, clone, other = folder / "bare.git", folder / "clone", folder / "other"
    shutil.copytree(template, folder)
    shutil.copytree(clone, other)
    monkeypatch.chdir(clone)
    with twins.serve(bare) as twin:
        for config, url in ((clone / ".git/config", twin.remote), (other / ".git/config", str(bare))):
            config.write_text(config.read_text().replace(str(template / "bare.git"), url))
        monkeypatch.setenv("GITHUB_SERVER_URL", twin.url)
        yield Place(bare, clone, other, twin, folder / "proposals", capfd)
        assert twin.violations == []


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, place: Place) -> list[float]:
    """How long would have been waited, in seconds."""
    found: list[float] = []
    monkeypatch.setattr(Wait, "sleep", lambda _, seconds, why="": found.append(seconds))
    return found
