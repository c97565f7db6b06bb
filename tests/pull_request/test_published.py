"""`--cgins-pr` where the base branch has moved: the proposal is measured anew, with kernels that are really run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.session import publish
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.proposal.from_journal import UNCOMMITTED
from tests.pull_request.conftest import Place, commit, git
from tests.pull_request.twin import Fault
from tests.regenerate import rebasing
from tests.regenerate.proposals import forge
from tests.regenerate.rebasing import HEADER, OLD, PATH, RIGHT, WRONG, YAML

pytestmark = pytest.mark.exam

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
        return self.folder.parents[1] / "rebased" / "p"

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
    folder = tmp_path / "proposals" / "p"
    rebasing.propose(folder, base_commit=first)
    made = Published(place, folder)
    real = publish._run

    def run(words: Sequence[str], environment: Mapping[str, str], limit_s: float) -> Any:
        made.environments.append((words[0], set(environment)))
        return real(words, environment, limit_s)

    monkeypatch.setattr(publish, "_run", run)
    yield made
    assert git(place.clone, "status", "--porcelain") == ""


def test_a_base_that_moved_is_measured_first(published: Published) -> None:
    """The pull request has evidence of the tip, which a process without a token has measured, and which is not lost."""
    published.again.mkdir(parents=True)
    (published.again / "proposal.json").write_text("half of it")
    tip = published.move({"kernels/settings.json": "{}\n"})
    [line] = published.open()
    api = published.place.twin.api
    [pull] = api.pulls
    assert line == f"opened #1 {published.place.twin.url}/octo/kernels/pull/1: Repair clamp (cpp on cpu)"
    found = proposal.read(published.again)
    assert (found.proposal.base_commit, found.evidence.base_revision) == (tip, tip)
    assert f"measured again on {tip}" in str(pull.body)
    assert git(published.place.bare, "rev-parse", f"{pull.head}^") == tip
    started = published.environments
    assert [word for word, _ in started] == ["pull-request", "proposal", "pull-request"]
    assert [bool(names & TOKENS) for _, names in started] == [True, False, True]
    assert published.open() == [
        f"unchanged: #1 {line.split()[2][:-1]} already has this proposal; nothing was done"
    ]
    assert [word for word, _ in started[3:]] == ["pull-request"]
    assert len(api.pulls) == 1
    assert [file.parent.name for file in published.folder.parent.rglob("proposal.json")] == ["p"]
    body = api.pulls[0].body
    assert published.place.open(published.folder) == 0
    assert api.pulls[0].body == body


def test_what_the_process_waits_for_is_said_meanwhile(
    published: Published, caplog: pytest.LogCaptureFixture
) -> None:
    """A server in trouble for three seconds: the process that opens the pull request says so, and so do we."""
    published.place.twin.faults = [Fault(status=503, times=2)]
    [line] = published.open()
    assert line.startswith("opened #1"), line
    said, summed_up = (record.message for record in caplog.records if record.name == "pytest_cgins")
    assert re.match(r"waiting for .*: try 2 of \d: .*503", said), said
    assert re.match(r"waited [3-6] s for ", summed_up), summed_up


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


def test_changes_that_were_not_committed(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal that claims no commit is measured on the tip, though that has not moved; here without a kernel."""
    note = f"{UNCOMMITTED}kernels/clamp.h"
    forge(published.folder, lambda data: data.update(base_commit="", notes=[note]))
    tip, real = published.place.tip("main"), publish._run

    def run(words: Sequence[str], *rest: Any) -> Any:
        if words[0] != "proposal":
            return real(words, *rest)
        published.environments.append((words[0], set()))
        rebasing.propose(published.again, base_commit=tip)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(publish, "_run", run)
    [line] = published.open()
    assert line.startswith("opened #1 ")
    assert [word for word, _ in published.environments] == ["pull-request", "proposal", "pull-request"]
    assert f"<code>{tip[:12]}" in str(published.place.twin.api.pulls[0].body)


def test_a_process_that_takes_too_long(
    published: Published, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is ended with all that it started, which has the token, too; the line says after what time."""
    started = tmp_path / "started"
    below = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    boot = f"""
import pathlib, subprocess, sys
below = subprocess.Popen([sys.executable, "-c", {below!r}])
pathlib.Path({str(started)!r}).write_text(str(below.pid))
below.wait()
"""
    monkeypatch.setattr(publish, "_BOOT", boot)
    monkeypatch.setattr(publish, "LIMIT_S", 3.0)
    monkeypatch.setattr(publish, "ENDING_S", 1.0)
    assert published.open() == ["no pull request for p: it took more than 3 s and was ended"]
    state = Path(f"/proc/{started.read_text()}/stat")
    for _ in range(100):
        # What is left of a process until its parent looks is no process that runs.
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the process below is still there")
