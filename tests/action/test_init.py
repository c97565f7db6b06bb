"""What `cgins init --github` writes: ten lines, whose steps are run from the pull request to its first comment."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_cgins.app.cli import main
from tests.action import events
from tests.action.github_parsers import Parsers
from tests.action.hub import Hub, zipped
from tests.action.local_runner import ROOT, Runner, Services
from tests.action.test_audit import WORKFLOW_SCHEMA, assert_clean, run
from tests.action.test_events import git
from tests.action.test_workflows import given_to_the_action
from tests.pull_request import twin as twins
from tests.pull_request.twin_api import Pull

COMMIT = "0f" * 20


@pytest.fixture
def work(recorded: Path, tmp_path: Path) -> Path:
    """A clone of a repository with right kernels only, as init left it: one commit on master, one on a branch."""
    folder = tmp_path / "work"
    shutil.copytree(recorded, folder)
    config = folder / "cgins.yaml"
    config.write_text("\n".join(line for line in config.read_text().splitlines() if "defines" not in line))
    git(tmp_path, "init", "--quiet", "--initial-branch=master", str(folder))
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "Kernels")
    git(folder, "checkout", "--quiet", "-b", "gate")
    assert main(["init", str(folder), "--github", f"octo/pytest-cgins@{COMMIT}"]) == 0
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "Gate them")
    return folder


def written(work: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in (work / ".github/workflows").iterdir()}


def called(parsers: Parsers, name: str, text: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The reusable workflow that the one job of a workflow calls, what it is given, and the job's permissions."""
    tree = parsers.parse("workflow", name, text)
    (job,) = tree["jobs"].values()
    path, _, commit = job["uses"].removeprefix("octo/pytest-cgins/.github/workflows/").partition("@")
    assert commit == COMMIT
    return path, job.get("with", {}), tree["permissions"]


def test_ten_lines_fit_what_they_call(parsers: Parsers, work: Path) -> None:
    """GitHub's schema and parser take them; inputs exist, and rights are those of the jobs that are called, and no more."""
    texts = written(work)
    assert sum(len(text.splitlines()) for text in texts.values()) <= 10
    assert_clean(run(WORKFLOW_SCHEMA, *(work / ".github/workflows").iterdir()))
    for name, text in texts.items():
        path, given, permissions = called(parsers, name, text)
        callee = yaml.safe_load((ROOT / ".github/workflows" / path).read_text())
        assert given.keys() <= callee[True]["workflow_call"]["inputs"].keys()
        (job,) = callee["jobs"].values()
        assert permissions == job["permissions"]
    assert called(parsers, "cgins.yml", texts["cgins.yml"])[1] == {
        "runner": '["self-hosted", "gpu"]',
        "python-version": "",
    }
    events = yaml.safe_load(texts["cgins.yml"])[True]
    assert "labeled" in events["pull_request"]["types"], "else the label cgins-weaker waits for the next push"
    assert "push" in events, "pull requests read the build cache that the default branch wrote"
    follows = yaml.safe_load(texts["cgins-comment.yml"])[True]["workflow_run"]["workflows"]
    assert follows == [yaml.safe_load(texts["cgins.yml"])["name"]]


@pytest.mark.exam
def test_from_the_pull_request_to_its_first_comment(
    parsers: Parsers, runner: Runner, work: Path, tmp_path: Path
) -> None:
    """The action gates as the workflow tells it, its artifact is fetched, and the comment says what was found."""
    event = replace(events.event("pull_request"), sha=git(work, "rev-parse", "HEAD"), base_ref="master")
    path, given, _ = called(parsers, "cgins.yml", written(work)["cgins.yml"])
    inputs = given_to_the_action(
        parsers, path, event, **{name.replace("-", "_"): value for name, value in given.items()}
    )
    for name in ("python", "package", "extras"):  # the runner's own
        del inputs[name]
    git(tmp_path, "clone", "--quiet", "--mirror", str(work), "kernels.git")
    git(work, "remote", "add", "origin", str(tmp_path / "kernels.git"))
    services = Services(tmp_path / "services")
    job = runner.run(
        work,
        tmp_path / "temp",
        event=event,
        services=services,
        **{name.replace("-", "_"): value for name, value in inputs.items()},
    )
    assert (job.code, job.outputs["passed"], job.outputs["skipped"]) == (0, "1", "1"), job.log

    path, given, _ = called(parsers, "cgins-comment.yml", written(work)["cgins-comment.yml"])
    artifact = given.get("artifact-name", "cgins-report")
    (tmp_path / "hub").mkdir()
    hub = Hub(tmp_path / "hub")
    kept = {file.name: file.read_bytes() for file in (services.folder / "artifacts" / artifact).iterdir()}
    hub.add(12, zipped(kept), name=artifact)
    (hub.folder / ".cgins-action").symlink_to(ROOT)
    head = {"head_sha": event.sha, "head_branch": "gate", "head_repository": {"owner": {"login": "octo"}}}
    (hub.folder / "event.json").write_text(json.dumps({"workflow_run": {"event": "pull_request", **head}}))
    path_variable = f"{hub.path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with twins.serve(tmp_path / "kernels.git") as twin:
        twin.api.pulls.append(Pull(1, "Gate them", "", "gate", "master", False))
        for step, more in (
            ("Fetch the report", {"GH_TOKEN": "s", "SINCE": "2026-01-01T00:00:00Z"}),
            ("Comment", {"GITHUB_TOKEN": twins.ACTIONS, "NAME": given.get("name", "gate"), "PYTHONPATH": ".cgins-action"}),
        ):  # fmt: skip
            done = hub.step(
                path, step, RUNNER_TEMP=str(hub.folder), ARTIFACT=artifact, GITHUB_SERVER_URL=twin.url,
                GITHUB_EVENT_PATH="event.json", PATH=path_variable, **more,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout
        (comment,) = twin.api.comments
    assert (comment.number, comment.login) == (1, "github-actions[bot]")
    assert "## cgins: 1 skipped, 1 passed" in comment.body


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--github", "octo/pytest-cgins@main"],
            "the action is 'octo/pytest-cgins@main', not OWNER/NAME@COMMIT",
        ),
        (["--github"], "which pytest-cgins the workflows use is not known"),
        (["--github", f"octo/pytest-cgins@{COMMIT}"], "cgins.yml, cgins-comment.yml"),
    ],
)
def test_what_is_not_written(
    work: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    """A branch moves, an editable installation has no commit, and what is there stays."""
    before = written(work)
    assert main(["init", str(work), *words]) == 2
    assert why in capsys.readouterr().err.replace(".github/workflows/", "")
    assert written(work) == before


def test_hosted_runners_gate_forks(parsers: Parsers, work: Path) -> None:
    """A required check is green where its job is skipped, and a fork's kernels would never have run."""
    (work / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces]\nkernels: {relu: {op: torch.nn.functional.relu, source: kernels/relu.cpp}}\n"
    )
    (work / "kernels").mkdir(exist_ok=True)
    (work / "kernels/relu.cpp").touch()
    assert main(["init", str(work), "--github", f"octo/pytest-cgins@{COMMIT}", "--force"]) == 0
    given = called(parsers, "cgins.yml", written(work)["cgins.yml"])[1]
    assert given["trusted-heads-only"] is False


def test_the_commit_is_that_which_pip_installed(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip notes where a package is from; so does an address with .git, or with a token for a private one."""
    origin = {
        "url": "https://github.com/team/pytest-cgins.git",
        "vcs_info": {"vcs": "git", "commit_id": COMMIT},
    }
    folder = tmp_path / "site" / "pytest_cgins-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-cgins\nVersion: 1.0\n")
    (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(folder.parent))
    assert main(["init", str(work), "--github", "--force"]) == 0
    assert f"team/pytest-cgins/.github/workflows/gate.yml@{COMMIT}" in written(work)["cgins.yml"]
