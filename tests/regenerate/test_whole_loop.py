"""The whole loop as its users run it: recorded, broken, found, repaired, proposed, gated again, merged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.core.verdict import Status
from tests.demo_regenerate import BROKEN, EXAMPLE, RIGHT, SOURCE
from tests.forked_python import CGINS, gate_python
from tests.pull_request import twin as twins
from tests.pull_request.twin import Twin
from tests.pull_request.twin_api import Pull
from tests.regenerate.llm_server import LlmServer, Reply
from tests.regenerate.projects import git, write

WRONG, REPAIRED = "variance /= (in.width + 1);", "variance /= in.width;  // of the row, not of a sample"
ADVICE = "The variance of a row is the mean of the squares: look at its divisor.\n"
WRITER, ADVISER = "writer", "adviser"
BRANCH = "cgins/repair/layer_norm-cpu-cpp"
PERSON = "ada"
MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.feed(self.norm(x))
"""
RECORD = """\
import torch

import pytest_cgins
from model import Block

torch.manual_seed(0)
block = Block().eval()
with torch.inference_mode(), pytest_cgins.record("traces/block", ops=["torch.nn.functional.layer_norm"]):
    block(torch.randn(2, 5, 12))
"""
YAML = f"""\
version: 1
traces: [traces/block]
gate: {{tolerate: 40%, catch: 90%}}
kernels:
  layer_norm: {{op: torch.nn.functional.layer_norm, source: {SOURCE}}}
llm:
  provider: compatible
  base_url: URL
  models: {{generator: {WRITER}, helper: {ADVISER}}}
  budget: {{side_by_side: 1}}
pull_request:
  labels: [cgins]
  reviewers: [{PERSON}]
  assignees: [{PERSON}]
"""


class Script:
    """A model whose first kernel is wrong, and whose second is right."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        """Of the kernels, in the order in which they came."""

    def __call__(self, asked: Any) -> Reply:
        if asked["model"] == ADVISER:
            return Reply(text=ADVICE)
        self.prompts.append("\n".join(message["content"] for message in asked["messages"]))
        old, new = (BROKEN, WRONG) if len(self.prompts) == 1 else (WRONG, REPAIRED)
        edit = f"<<<<<<< SEARCH\n    {old}\n=======\n    {new}\n>>>>>>> REPLACE"
        return Reply(text=f"The divisor is wrong.\n\n```cpp {SOURCE}\n{edit}\n```\n")


class User:
    """Somebody at a command line, in a clone."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        left_out = ("GITHUB_", "GH_", "PYTEST_XDIST_", "COV_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        kept.pop("CI", None)
        self._environment = {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200", **variables}

    def python(self, *words: str, expect: int = 0) -> str:
        """Output of a command of Python that must end with an exit status."""
        done = gate_python().run(words, cwd=self.folder, env=self._environment)
        assert done.returncode == expect, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def cgins(self, *words: str, expect: int = 0) -> str:
        return self.python(*CGINS, *words, expect=expect)

    def gate(self, *words: str, expect: int = 0) -> tuple[str, dict[str, Any]]:
        """What `pytest --cgins` says, and its report."""
        command = ("-m", "pytest", "-p", "pytest_cgins.plugin", "-p", "no:cacheprovider")
        told = self.python(*command, "--cgins", "--cgins-json=report.json", *words, expect=expect)
        return told, json.loads((self.folder / "report.json").read_text())

    def edit(self, old: str, new: str, message: str) -> None:
        """Change the kernel, commit and push."""
        file = self.folder / SOURCE
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
        git(self.folder, "commit", "--quiet", "--all", "-m", message)
        git(self.folder, "push", "--quiet", "origin", "HEAD:main")


def outcomes(report: dict[str, Any]) -> list[str]:
    """What the verdict on each case means."""
    return [Status(one["verdict"]["status"]).outcome for one in report["evaluations"]]


def digests(report: dict[str, Any]) -> set[str]:
    """Of the kernels that were gated."""
    return {one["kernel_digest"] for one in report["evaluations"]}


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[Twin]:
    """A server with an empty repository, in which one person works."""
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "kernels.git")
    with twins.serve(tmp_path / "kernels.git") as twin:
        twin.api.collaborators.append(PERSON)
        yield twin
        assert twin.violations == []


@pytest.fixture
def user(tmp_path: Path, twin: Twin) -> User:
    """A person with a bot's token, in a clone of the empty repository."""
    clone(twin, tmp_path / "clone")
    return User(tmp_path / "clone", GITHUB_TOKEN=twins.BOT, GITHUB_SERVER_URL=twin.url)


def clone(twin: Twin, folder: Path) -> Path:
    """A clone with a token in its address, as a private repository wants."""
    address = twin.remote.replace("//", f"//{PERSON}:{twins.WRITER}@", 1)
    git(folder.parent, "clone", "--quiet", address, folder.name)
    return folder


def record(user: User, base_url: str) -> None:
    """A model, a right kernel and a recorded pack, gated and pushed."""
    for name in (SOURCE, "kernels/layer_norm.h", "kernels/rows.h", "kernels/checks.h"):
        (user.folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(EXAMPLE / name, user.folder / name)
    ignored = "__pycache__/\n.cgins/\nreport.json\n"
    files = {"model.py": MODEL, "record.py": RECORD, "pytest.ini": "[pytest]\n", ".gitignore": ignored}
    write(user.folder, {"cgins.yaml": YAML.replace("URL", base_url), **files})
    user.python("-m", "record")
    git(user.folder, "add", "--all")
    git(user.folder, "commit", "--quiet", "-m", "A block and its layer norm")
    git(user.folder, "push", "--quiet", "origin", "HEAD:main")


def comment(user: User, twin: Twin, pull: Pull) -> str:
    """Comment on a pull request, as a workflow does after the gate; the comment."""
    repository = {"id": 1, "full_name": "octo/kernels"}
    head = {"ref": pull.head, "sha": twin.api.tip(pull.head), "repo": repository}
    event = {"repository": repository, "pull_request": {"number": pull.number, "head": head}}
    (user.folder / "event.json").write_text(json.dumps(event))
    workflow = User(
        user.folder,
        GITHUB_TOKEN=twins.ACTIONS,
        GITHUB_SERVER_URL=twin.url,
        GITHUB_REPOSITORY="octo/kernels",
        GITHUB_EVENT_PATH="event.json",
    )
    assert workflow.cgins("comment", "report.json").startswith("created ")
    [written] = twin.api.comments
    assert (written.number, written.login) == (pull.number, "github-actions[bot]")
    return written.body


def opened(user: User, twin: Twin, told: str) -> tuple[Path, Pull]:
    """The proposal of a run, and the one pull request of it, as `cgins.yaml` wants it."""
    [proposal] = user.folder.glob(".cgins/runs/*/proposals/layer_norm-cpu-cpp")
    [pull] = twin.api.pulls
    assert f"cgins: opened #1 {twin.url}/octo/kernels/pull/1: {pull.title}" in told
    assert (pull.head, pull.base, pull.draft, pull.login) == (BRANCH, "main", True, "cgins-app[bot]")
    assert (pull.labels, pull.reviewers, pull.assignees) == (["cgins"], [PERSON], [PERSON])
    assert twin.api.git("diff", "--name-only", "main", BRANCH) == SOURCE
    assert WRONG not in str(pull.body)
    assert f"+    {REPAIRED}" in str(pull.body)
    return proposal, pull


def test_a_broken_kernel_is_repaired_by_a_pull_request(user: User, twin: Twin, tmp_path: Path) -> None:
    """A recorded kernel that a person breaks on main is found, repaired by a model, gated again, and merged once."""
    script = Script()
    with LlmServer(script) as server:
        record(user, server.base_url)
        user.edit(RIGHT, BROKEN, "layer_norm: the unbiased variance")
        told, red = user.gate("--cgins-no-timing", expect=1)
        assert outcomes(red) == ["fail"]
        assert "INCORRECT (gold-mismatch): the output differs from the recorded gold" in told

        told, _ = user.gate("--cgins-regenerate", "--cgins-no-timing", "--cgins-pr=auto", expect=1)
        assert "layer_norm-cpu-cpp: accepted after 2 of 5 attempts" in told
        assert [WRONG in prompt for prompt in script.prompts] == [False, True]
        assert twins.BOT not in json.dumps([[one.json, dict(one.headers)] for one in server.requests])
    proposal, pull = opened(user, twin, told)

    # No model is there any more, and the reviewer's commands have no token.
    reviewer = User(clone(twin, tmp_path / "review"))
    git(reviewer.folder, "fetch", "--quiet", "origin", pull.head)
    git(reviewer.folder, "checkout", "--quiet", "FETCH_HEAD")
    _, after = reviewer.gate("--cgins-baseline=origin/main")
    assert outcomes(after) == ["pass"]
    assert digests(after) == digests(json.loads((proposal / "evidence.json").read_text()))
    assert digests(after).isdisjoint(digests(red))

    said = comment(reviewer, twin, pull)
    assert reviewer.cgins("report", "report.json", "--format=comment").strip() in said
    assert json.loads((proposal / "proposal.json").read_text())["id"] in said

    twin.api.merge(pull)
    again = user.cgins("pull-request", "open", "--proposal", str(proposal))
    assert again == "main already has these files: nothing was done\n"
    assert twin.api.pulls == [pull]
    assert REPAIRED in twin.api.git("show", f"main:{SOURCE}")
