"""The action on the events that start it, in checkouts as GitHub's own action makes them: one commit deep."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.action import events
from tests.action.events import Event
from tests.action.local_runner import ACTION, Job, Runner, Services, parse_outputs

PERSON = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@team.example"))
}

QUICK = {"working_directory": "my project", "pytest_args": "-k right", "timing": "false", "cache": "false"}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **PERSON, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Server:
    """A repository with a pull request: `master` has two commits, the pull request began at the first."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.bare = folder / "bare.git"
        work = folder / "work"
        git(folder, "init", "--quiet", "--initial-branch=master", str(work))
        shutil.copytree(project, work / "my project")
        self.first = self._commit(work)
        git(work, "checkout", "--quiet", "-b", "changes")
        config = work / "my project" / "cgins.yaml"
        lines = [line for line in config.read_text().splitlines() if "cuda" not in line]
        config.write_text("\n".join(lines) + "\n")
        self.head = self._commit(work)
        git(work, "checkout", "--quiet", "master")
        (work / "README").write_text("more\n")
        self.tip = self._commit(work)
        git(work, "checkout", "--quiet", "--detach")
        git(work, "merge", "--quiet", "--no-edit", "changes")
        self.merge = git(work, "rev-parse", "HEAD")
        git(work, "update-ref", "refs/pull/2/merge", "HEAD")
        git(folder, "clone", "--quiet", "--mirror", str(work), str(self.bare))
        git(self.bare, "config", "uploadpack.allowAnySHA1InWant", "true")

    def _commit(self, work: Path) -> str:
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "-m", "Work")
        return git(work, "rev-parse", "HEAD")

    def check_out(self, folder: Path, commit: str, *, depth: int = 1) -> Path:
        """As actions/checkout does it; depth 0 is all of it."""
        folder.mkdir(parents=True)
        git(folder, "init", "--quiet", "--initial-branch=master")
        git(folder, "remote", "add", "origin", self.bare.as_uri())
        if depth:
            git(folder, "fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", commit)
        else:
            git(
                folder,
                "fetch",
                "--quiet",
                "--no-tags",
                "origin",
                "+refs/heads/*:refs/remotes/origin/*",
                commit,
            )
        git(folder, "checkout", "--quiet", "--force", "--detach", commit)
        return folder


@pytest.fixture(scope="module")
def server(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("server"), recorded)


def find_base(workspace: Path, files: Path, **variables: str) -> tuple[dict[str, str], str]:
    """Outputs and log of base.py."""
    output = files / "github-output"
    output.write_text("")
    own = {
        "CGINS_FOLDER": str(workspace),
        "INPUT_BASELINE": "",
        "INPUT_TOKEN": "",
        "GITHUB_OUTPUT": str(output),
    }
    done = subprocess.run(
        [sys.executable, str(ACTION / "base.py")],
        env={"PATH": os.environ["PATH"], "GITHUB_SERVER_URL": "https://github.com", **own, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return parse_outputs(output.read_text()), done.stdout


@pytest.mark.exam
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_base_of_a_merge_is_the_tip_of_its_base_branch(server: Server, tmp_path: Path, depth: int) -> None:
    """Whatever the depth, the merge of a pull request is compared with its first parent, which is then there."""
    workspace = server.check_out(tmp_path / "here", server.merge, depth=depth)
    event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_SHA": server.merge}
    found, log = find_base(workspace, tmp_path, GITHUB_BASE_REF="master", **event)
    assert found == {"base": server.tip, "baseline": server.tip}
    assert git(workspace, "cat-file", "-t", f"{server.tip}^{{tree}}") == "tree"
    assert log == ""


@pytest.mark.parametrize("depth", [0, 1])
def test_base_of_the_head_itself_is_where_it_left_the_branch(
    server: Server, tmp_path: Path, depth: int
) -> None:
    """A checkout of the pull request's own commit is compared with the commit at which it began."""
    workspace = server.check_out(tmp_path / "here", server.head, depth=depth)
    found, _ = find_base(workspace, tmp_path, GITHUB_BASE_REF="master")
    assert found["base"] == server.first


def test_merge_of_the_base_into_the_head_is_not_the_merge_of_the_pull_request(
    server: Server, tmp_path: Path
) -> None:
    """A head that took in its base branch has two parents as well; the first is the pull request's own commit."""
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", server.bare.as_uri(), str(work))
    git(work, "checkout", "--quiet", "--detach", server.head)
    git(work, "merge", "--quiet", "--no-edit", server.tip)
    git(work, "push", "--quiet", "origin", "HEAD:refs/heads/updated")
    head = git(work, "rev-parse", "HEAD")
    workspace = server.check_out(tmp_path / "here", head)
    event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_SHA": server.merge}
    found, _ = find_base(workspace, tmp_path, GITHUB_BASE_REF="master", **event)
    assert found["base"] == server.tip


def test_checkout_of_another_user_is_looked_at(server: Server, tmp_path: Path) -> None:
    """As in a container's job; git itself would refuse the folder."""
    workspace = server.check_out(tmp_path / "here", server.merge, depth=0)
    found, _ = find_base(
        workspace, tmp_path, GITHUB_BASE_REF="master", GIT_TEST_ASSUME_DIFFERENT_OWNER="1", HOME=str(tmp_path)
    )
    assert found["base"] == server.tip


def test_whole_clone_without_the_branch_is_a_warning(server: Server, tmp_path: Path) -> None:
    """No pull request is compared with nothing in silence."""
    workspace = server.check_out(tmp_path / "here", server.merge, depth=0)
    found, log = find_base(workspace, tmp_path, GITHUB_BASE_REF="gone")
    assert found == {"base": "", "baseline": ""}
    assert log.startswith("::warning title=pytest-cgins::the commit that this pull request left gone at")


def test_base_that_cannot_be_had_is_a_warning(server: Server, tmp_path: Path) -> None:
    """Without a way to the server nothing is compared, which an annotation says; the run goes on."""
    workspace = server.check_out(tmp_path / "here", server.merge)
    git(workspace, "remote", "set-url", "origin", str(tmp_path / "nowhere"))
    found, log = find_base(workspace, tmp_path, GITHUB_BASE_REF="master")
    assert found == {"base": "", "baseline": ""}
    assert log.startswith("::warning title=pytest-cgins::the commit that this pull request left master at")
    assert "fetch-depth 0" in log


def test_given_baseline_is_fetched(server: Server, tmp_path: Path) -> None:
    """A commit that the input names is fetched by its name; forty zeros, a new branch's commit before, are none."""
    workspace = server.check_out(tmp_path / "here", server.tip)
    found, _ = find_base(workspace, tmp_path, INPUT_BASELINE=server.first)
    assert found == {"base": server.first, "baseline": server.first}
    found, _ = find_base(workspace, tmp_path, INPUT_BASELINE="0" * 40)
    assert found == {"base": "", "baseline": ""}
    found, _ = find_base(workspace, tmp_path, INPUT_BASELINE="none")
    assert found == {"base": "", "baseline": "none"}


@pytest.mark.parametrize(
    ("remote", "told"),
    [
        ("https://github.com/a/b", True),
        ("https://github.com.evil.example/a/b", False),
        ("/some/where", False),
    ],
)
def test_token_goes_to_the_server_of_the_run_alone(
    server: Server, tmp_path: Path, remote: str, told: bool
) -> None:
    """It is in git's environment during a fetch from GitHub, on no command line, and never for another server."""
    workspace = server.check_out(tmp_path / "here", server.merge)
    git(workspace, "remote", "set-url", "origin", remote)
    seen = tmp_path / "seen"
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/sh\ncase \"$*\" in *fetch*) echo \"$*\" >>'{seen}'; env >>'{seen}'; exit 1;; esac\n"
        f"exec '{shutil.which('git')}' \"$@\"\n"
    )
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    found, log = find_base(workspace, tmp_path, GITHUB_BASE_REF="master", INPUT_TOKEN="s3cret", PATH=path)
    text = seen.read_text()
    assert ("AUTHORIZATION: basic " in text) == told
    assert "s3cret" not in text + log + str(found)
    assert all("AUTHORIZATION" not in line for line in text.splitlines() if " fetch " in line)


@pytest.mark.exam
@pytest.mark.parametrize("name", events.NAMES)
def test_action_on_each_event(runner: Runner, server: Server, tmp_path: Path, name: str) -> None:
    """The gate runs on every event; in pull requests, forks' too, a dropped kernel fails, and elsewhere nothing does."""
    event = events.event(name)
    pull = event.name == "pull_request"
    commit = server.merge if pull else server.tip
    workspace = server.check_out(tmp_path / "check out", commit)
    job = runner.run(
        workspace,
        tmp_path / "temp",
        event=replace(event, sha=commit),
        **QUICK,
    )
    assert (job.code, job.outputs["base"]) == ((1, server.tip) if pull else (0, "")), job.log
    assert ("<strong>Missing cases</strong>" in job.summary) == pull
    assert job.tokens == {"Find the base"}
    report = json.loads(Path(job.outputs["report-path"]).read_text())
    assert [one.partition("/tiny/")[0] for one in report["missing"]] == ["cgins.yaml::relu/cuda"] * pull
    assert json.loads((tmp_path / "temp" / "files" / "event.json").read_text()) == event.payload


def history_run(runner: Runner, server: Server, folder: Path, event: Event) -> Job:
    workspace = server.check_out(folder / "check out", server.tip)
    return runner.run(
        workspace,
        folder / "temp",
        event=replace(event, sha=server.tip),
        **{**QUICK, "timing": "true", "history": "../history.jsonl"},
    )


@pytest.mark.exam
def test_history_grows_on_the_default_branch_alone(runner: Runner, server: Server, tmp_path: Path) -> None:
    """A scheduled run appends its times to the file that the input names; a pull request's says why it does not."""
    job = history_run(runner, server, tmp_path / "nightly", events.event("schedule"))
    lines = (tmp_path / "nightly" / "check out" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["head"]["commit"] for line in lines] == [server.tip], job.log
    job = history_run(runner, server, tmp_path / "pull", events.event("pull_request"))
    assert not (tmp_path / "pull" / "check out" / "history.jsonl").exists()
    assert "GitHub's event pull_request" in job.log


@pytest.mark.exam
def test_verdicts_are_kept_by_schedules_and_taken_by_pull_requests(
    runner: Runner, server: Server, tmp_path: Path
) -> None:
    """In GitHub's cache; a pull request's run keeps none, and its report says whose they are."""
    services = Services(tmp_path / "services")
    jobs = {}
    for name in ("schedule", "pull_request"):
        workspace = server.check_out(tmp_path / name / "check out", server.tip)
        jobs[name] = runner.run(
            workspace,
            tmp_path / "runner temp",
            event=replace(events.event(name), sha=server.tip),
            services=services,
            **QUICK,
            store="cache",
            artifact_name="",
        )
        stored = [
            one["stored"]
            for one in json.loads(Path(jobs[name].outputs["report-path"]).read_text())["evaluations"]
        ]
        assert [bool(one) for one in stored] == [name == "pull_request"], jobs[name].log
        shutil.rmtree(tmp_path / "runner temp")
    assert stored[0]["revision"] == server.tip
    assert "Keep verdicts" in jobs["schedule"].used
    assert "Keep verdicts" not in jobs["pull_request"].used
    assert len([name for name in services.cached() if name.startswith("cgins-verdicts-")]) == 1


@pytest.mark.exam
def test_packs_come_from_the_cache_or_the_run_fails(runner: Runner, recorded: Path, tmp_path: Path) -> None:
    """Blobs that are not in the repository are restored under their key; without them nothing is gated."""
    services = Services(tmp_path / "services")
    blobs = "my project/traces/tiny/blobs"
    for name, saved in (("without", False), ("with", True)):
        workspace = tmp_path / name
        shutil.copytree(recorded, workspace / "my project")
        if saved:
            place = services.folder / "caches" / "packs-1" / "0"
            shutil.copytree(workspace / blobs, place)
        shutil.rmtree(workspace / blobs)
        # GitHub's own action takes paths from the workspace; the one that is played here knows no workspace.
        job = runner.run(
            workspace,
            tmp_path / f"temp {name}",
            services=services,
            **QUICK,
            packs=str(workspace / blobs),
            packs_key="packs-1",
        )
        assert job.outputs["passed"] == ("1" if saved else ""), job.log
        assert ("Gate" in job.ran) == saved
        assert (job.code == 0) == saved


@pytest.mark.exam
def test_packs_that_were_changed_in_the_cache_gate_nothing(
    runner: Runner, recorded: Path, tmp_path: Path
) -> None:
    """A blob that is not what the manifest in the repository says is refused: the case is no pass."""
    workspace = tmp_path / "check out"
    shutil.copytree(recorded, workspace / "my project")
    blobs = workspace / "my project/traces/tiny/blobs"
    services = Services(tmp_path / "services")
    place = services.folder / "caches" / "packs-1" / "0"
    shutil.copytree(blobs, place)
    for blob in place.iterdir():
        content = bytearray(blob.read_bytes())
        content[-1] ^= 1
        blob.write_bytes(content)
    shutil.rmtree(blobs)
    job = runner.run(
        workspace,
        tmp_path / "temp",
        services=services,
        **QUICK,
        packs=str(blobs),
        packs_key="packs-1",
    )
    assert job.code != 0
    assert job.outputs["passed"] == "0", job.log
    assert "sha256" in job.log


@pytest.mark.exam
@pytest.mark.parametrize("baseline", ["none", "HEAD"])
def test_a_pull_request_does_not_choose_what_it_is_compared_with(
    runner: Runner, server: Server, tmp_path: Path, baseline: str
) -> None:
    """In a whole clone too, where the gate would find its base by itself: cgins.yaml is the pull request's own word."""
    workspace = server.check_out(tmp_path / "check out", server.merge, depth=0)
    config = workspace / "my project" / "cgins.yaml"
    config.write_text(f"{config.read_text()}gate: {{baseline: {baseline}}}\n")
    job = runner.run(
        workspace,
        tmp_path / "temp",
        event=replace(events.event("pull_request"), sha=server.merge),
        **QUICK,
    )
    assert (job.code, job.outputs["base"]) == (1, server.tip), job.log
    assert "<strong>Missing cases</strong>" in job.summary
