"""`--cgins-pr` where the base branch has moved: the proposal is measured anew, with kernels that are really run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.regenerate import proposal
from pytest_cgins.session import publish
from tests.github.conftest import Place, commit, git
from tests.regenerate import rebasing
from tests.regenerate.proposals import Make
from tests.regenerate.rebasing import HEADER, OLD, PATH, RIGHT, WRONG, YAML

TOKENS = {"GITHUB_TOKEN", "GH_TOKEN"}


@dataclass
class Published:
    """A clone and its server, and a proposal that was measured on what both have."""

    place: Place
    folder: Path
    """Of the proposal."""
    environments: list[tuple[str, set[str]]] = field(default_factory=list)
    """First word and names of variables of each process that was started for a proposal."""

    @property
    def again(self) -> Path:
        return self.folder.with_name("p-rebased")

    def move(self, files: Mapping[str, str]) -> str:
        """Somebody else pushes to the base branch."""
        git(self.place.other, "pull", "--quiet")
        return commit(self.place.other, files)

    def open(self) -> list[str]:
        return list(publish.published([self.folder], self.place.clone / "cgins.yaml", "auto"))


@pytest.fixture
def published(
    place: Place,
    made_once: Callable[[str, Callable[[Path], object]], Path],
    make_evaluation: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Published]:
    """A project with a real kernel, pushed."""
    monkeypatch.setenv("GITHUB_SERVER_URL", place.twin.url)
    monkeypatch.setenv("GH_TOKEN", os.environ["GITHUB_TOKEN"])
    git(place.other, "remote", "set-url", "origin", str(place.bare))
    shutil.copytree(made_once("rebase-packs", rebasing.record) / "traces", place.other / "traces")
    first = commit(place.other, {"cgins.yaml": YAML, PATH: OLD, HEADER: WRONG})
    git(place.clone, "pull", "--quiet", str(place.bare), "main")
    rebasing.propose(tmp_path / "p", make_evaluation, base_commit=first)
    made = Published(place, tmp_path / "p")
    real = subprocess.run

    def run(command: Any, *arguments: Any, **options: Any) -> Any:
        if publish._BOOT in command:
            words = command[command.index(publish._BOOT) + 1 :]
            made.environments.append((words[0], set(options["env"])))
        return real(command, *arguments, **options)

    monkeypatch.setattr(subprocess, "run", run)
    yield made
    assert git(place.clone, "status", "--porcelain") == ""


def test_a_base_that_moved_is_measured_first(published: Published) -> None:
    """The pull request has evidence of the tip, which a process without a token has measured, and which is not lost."""
    published.again.mkdir()
    (published.again / "proposal.json").write_text("half of it")
    tip = published.move({"kernels/settings.json": "{}\n"})
    [line] = published.open()
    api = published.place.twin.api
    [pull] = api.pulls
    assert line == f"opened #1 {published.place.twin.url}/octo/kernels/pull/1: Repair clamp (cpp on cpu)"
    found = proposal.read(published.again)
    assert (found.proposal.base_commit, found.evidence.base_revision) == (tip, tip)
    assert f"measured anew on {tip}" in str(pull.body)
    assert git(published.place.bare, "rev-parse", f"{pull.head}^") == tip
    started = published.environments
    assert [word for word, _ in started] == ["pull-request", "proposal", "pull-request"]
    assert [bool(names & TOKENS) for _, names in started] == [True, False, True]
    assert published.open() == [
        f"unchanged: #1 {line.split()[2][:-1]} has this proposal already; nothing was done"
    ]
    assert [word for word, _ in started[3:]] == ["pull-request"]
    assert len(api.pulls) == 1


def test_a_base_on_which_it_is_not_accepted(published: Published) -> None:
    """The case that fails on the tip is named, and no pull request is opened."""
    tip = published.move({"cgins.yaml": YAML.replace("[traces/tiny]", "[traces/tiny, traces/double]")})
    [line] = published.open()
    assert line.startswith(f"no pull request for p: not accepted at {tip[:10]}: clamp/cpu-cpp/double/")
    assert published.place.twin.api.pulls == []


def test_a_base_that_needs_it_no_more(published: Published) -> None:
    """A kernel that passes on the tip as it is gets no pull request."""
    tip = published.move({HEADER: RIGHT})
    said = f"the kernel passes at {tip[:10]} without it: nothing to do"
    assert published.open() == [f"no pull request for p: {said}"]
    assert published.place.twin.api.pulls == []


def test_a_base_with_another_kernel(published: Published) -> None:
    """Where somebody changed the kernel itself nothing is measured: what to do is said."""
    published.move({PATH: "// another\n"})
    [line] = published.open()
    assert line.startswith(
        f'no pull request for p: the proposal is stale: "{PATH}" on main is not what it was made'
    )
    assert line.endswith("→ regenerate the kernel on the tip of main")
    assert [word for word, _ in published.environments] == ["pull-request"]


def test_a_base_that_stayed(published: Published) -> None:
    """What was measured on the tip is opened as it is."""
    [line] = published.open()
    assert line.startswith("opened #1 ")
    assert [word for word, _ in published.environments] == ["pull-request"]
    assert not published.again.exists()
