"""The workflows by GitHub's own parser: what may run on which event, and what each job may reach."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.action import events
from tests.action.events import Event
from tests.action.github_parsers import Parsers, State
from tests.action.local_runner import ROOT

FOLDER = ROOT / ".github" / "workflows"
NAMES = sorted(file.name for file in FOLDER.glob("*.yml"))
READS = {"contents": "read"}
PERMISSIONS: dict[tuple[str, str], dict[str, str]] = {
    ("comment.yml", "comment"): {"actions": "read", "contents": "read", "pull-requests": "write"},
    ("matrix.yml", "merge"): {"actions": "read", "contents": "read"},
    ("regenerate.yml", "publish"): {
        "actions": "read",
        "contents": "write",
        "issues": "write",
        "pull-requests": "write",
    },
    ("release.yml", "publish"): {"actions": "read", "contents": "read", "id-token": "write"},
    ("release.yml", "tag"): {"contents": "write"},
}
"""Of the jobs that have more than the right to read the sources."""
OWN_MACHINES = {
    ("gate.yml", "gate"), ("gpu-gate.yml", "gate"), ("matrix.yml", "gate"), ("nightly.yml", "history"),
    ("regenerate.yml", "regenerate"),
}  # fmt: skip
"""Jobs that may run on a team's own machine."""
STARTS = {
    "ci.yml": ("pull_request", "push"),
    "exam.yml": ("pull_request", "push", "schedule", "workflow_dispatch"),
    "gpu-gate.yml": ("pull_request", "push", "workflow_dispatch"),
    "release.yml": ("push",),
}
"""What starts the workflows that are not for others to call."""
SECRETS = {
    ("comment.yml", "Fetch the report"): {"github.token"},
    ("comment.yml", "Comment"): {"github.token"},
    ("matrix.yml", "Fetch and merge the reports"): {"github.token"},
    ("regenerate.yml", "Regenerate"): {"secrets.llm-key"},
    ("regenerate.yml", "Publish the proposals"): {"github.token", "secrets.publish-token || github.token"},
    ("regenerate.yml", "Look after open pull requests"): {"secrets.publish-token || github.token"},
    ("release.yml", "Publish with attestations"): {"github.token"},
    ("release.yml", "Move the tag and make the release"): {"github.token"},
}
"""Steps that have a token or a key."""


def parse(parsers: Parsers, name: str) -> dict[str, Any]:
    return parsers.parse("workflow", name, (FOLDER / name).read_text(encoding="utf-8"))


def jobs(tree: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = tree["jobs"]
    return found


def state(tree: dict[str, Any], event: Event) -> State:
    """What conditions see; a reusable workflow's inputs have their defaults."""
    call = (tree["on"] or {}).get("workflow_call") or {}
    inputs = {name: one.get("default", "[]") for name, one in (call.get("inputs") or {}).items()}
    needs = {name: {"result": "success"} for name in ("gate", "regenerate")}
    return State(
        {
            "github": event.context(),
            "inputs": inputs,
            "vars": {"GPU_RUNNER": "true"},
            "needs": needs,
            "env": {},
        }
    )


def runs(parsers: Parsers, name: str, job: str, event: Event) -> bool:
    tree = parse(parsers, name)
    found = jobs(tree)[job]
    return found.get("if") is None or parsers.holds(found, state(tree, event))


def test_events_are_those_that_are_meant(parsers: Parsers) -> None:
    """Four workflows start by themselves; the others are called. None takes pull_request_target."""
    for name in NAMES:
        starts = tuple(sorted(parse(parsers, name)["on"]))
        assert starts == STARTS.get(name, ("workflow_call",))


def test_each_job_has_the_rights_of_the_table(parsers: Parsers) -> None:
    """No right by default, and each job those that it needs; none that runs code of a revision may write."""
    found = {}
    for name in NAMES:
        tree = parse(parsers, name)
        assert tree["permissions"] == {}
        for job, one in jobs(tree).items():
            if one["permissions"] != READS:
                found[name, job] = one["permissions"]
    assert found == PERMISSIONS
    assert not PERMISSIONS.keys() & OWN_MACHINES


def test_what_may_write_runs_no_kernel(parsers: Parsers) -> None:
    """Jobs that may write are on GitHub's machines, and neither run pytest nor use the action."""
    for name, job in PERMISSIONS:
        one = jobs(parse(parsers, name))[job]
        assert one["runs-on"] == "ubuntu-24.04"
        text = json.dumps(one)
        assert "pytest " not in text.replace("pytest_cgins", "")
        assert '/action"' not in text


def test_comment_job_never_has_the_pull_requests_code(parsers: Parsers) -> None:
    """All that it checks out is pytest-cgins at the workflow's own commit."""
    steps = jobs(parse(parsers, "comment.yml"))["comment"]["steps"]
    checkouts = [step["with"] for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert [one["repository"] for one in checkouts] == [{"expr": "job.workflow_repository"}]
    assert [one["ref"] for one in checkouts] == [{"expr": "job.workflow_sha"}]


def test_secrets_are_where_the_table_says(parsers: Parsers) -> None:
    """Tokens and keys are in the environment of the named steps, and nowhere else in a workflow."""
    found: dict[tuple[str, str], set[str]] = {}
    for name in NAMES:
        tree = parse(parsers, name)
        for one in jobs(tree).values():
            for step in one["steps"]:
                for value in (step.get("env") or {}).values():
                    if isinstance(value, dict) and ("secrets." in value["expr"] or "token" in value["expr"]):
                        found.setdefault((name, step["name"]), set()).add(value["expr"])
                elsewhere = json.dumps({key: value for key, value in step.items() if key != "env"})
                assert "secrets." not in elsewhere
            assert "secrets." not in json.dumps({key: one[key] for key in one.keys() - {"steps"}})
    assert found == SECRETS


def test_credentials_are_not_kept_and_jobs_end(parsers: Parsers) -> None:
    """No checkout leaves a token behind, and each job has a limit of time."""
    for name in NAMES:
        for one in jobs(parse(parsers, name)).values():
            assert one["timeout-minutes"]
            for step in one["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] == "false"


def test_jobs_on_own_machines_are_those_of_the_table(parsers: Parsers) -> None:
    """Every other job names a machine of GitHub's."""
    found = {
        (name, job)
        for name in NAMES
        for job, one in jobs(parse(parsers, name)).items()
        if one["runs-on"] != "ubuntu-24.04"
    }
    assert found == OWN_MACHINES


@pytest.mark.parametrize(("name", "job"), sorted(OWN_MACHINES))
def test_own_machines_never_meet_a_fork(parsers: Parsers, name: str, job: str) -> None:
    """On a fork's pull request none of them runs; on pushes all do that are meant for them."""
    fork = events.event("fork")
    # No workflow here has these events; who calls one may, and their runs may have the head's code.
    for event in ("pull_request", "pull_request_target", "pull_request_review"):
        assert not runs(parsers, name, job, replace(fork, name=event))
    gone = replace(fork, payload=copy.deepcopy(fork.payload))
    gone.payload["pull_request"]["head"]["repo"] = None
    assert not runs(parsers, name, job, gone)
    assert runs(parsers, name, job, events.event("push")) == (name != "regenerate.yml")
    assert runs(parsers, name, job, events.event("pull_request")) == (
        name in ("gate.yml", "gpu-gate.yml", "matrix.yml")
    )


def test_regeneration_is_for_dispatch_and_timetable_alone(parsers: Parsers) -> None:
    """No event that a stranger causes reaches the model's key, and no branch but the default one."""
    for name in events.NAMES:
        expected = name in ("workflow_dispatch", "schedule")
        assert runs(parsers, "regenerate.yml", "regenerate", events.event(name)) == expected
    dispatch = events.event("workflow_dispatch")
    other = Event(dispatch.name, dispatch.payload, "refs/heads/other", dispatch.sha)
    assert not runs(parsers, "regenerate.yml", "regenerate", other)


def test_publishing_follows_every_regeneration_that_ran(parsers: Parsers) -> None:
    """Also one that failed: proposals that were accepted before are published. One that was skipped has none."""
    tree = parse(parsers, "regenerate.yml")
    seen = state(tree, events.event("schedule"))
    for result, expected in (("success", True), ("failure", True), ("skipped", False)):
        seen.contexts["needs"]["regenerate"]["result"] = result
        seen.failed = result != "success"
        assert parsers.holds(jobs(tree)["publish"], seen) == expected
    seen.contexts["needs"]["regenerate"]["result"] = "failure"
    seen.cancelled = True
    assert not parsers.holds(jobs(tree)["publish"], seen)


def test_publishing_sees_all_commits_and_no_more_proposals_than_it_may(parsers: Parsers) -> None:
    """The clone is not shallow, so that what is merged is known to be; the input is the script's limit."""
    tree = parse(parsers, "regenerate.yml")
    steps = jobs(tree)["publish"]["steps"]
    checkout = steps[0]["with"]
    assert (checkout["fetch-depth"], checkout["filter"]) == ("0", "blob:none")
    (publish,) = (one for one in steps if one.get("name") == "Publish the proposals")
    seen = state(tree, events.event("schedule"))
    assert parsers.text(publish["env"]["MOST"], seen) == "20"


def test_journal_is_kept_also_of_a_run_that_was_ended(parsers: Parsers) -> None:
    """A job that hit its limit of time is cancelled; the journal, with which it is resumed, is uploaded all the same."""
    tree = parse(parsers, "regenerate.yml")
    (upload,) = (one for one in jobs(tree)["regenerate"]["steps"] if one.get("name") == "Upload the journal")
    seen = state(tree, events.event("schedule"))
    seen.cancelled = True
    assert parsers.holds(upload, seen)
    assert parsers.text(upload["with"]["path"], seen) == "./.cgins/runs/"
    assert upload["with"]["include-hidden-files"] == "true"


def test_merged_report_is_uploaded_also_of_kernels_that_failed(parsers: Parsers) -> None:
    """The step before ends with the gate's exit code, and its report is what people want then."""
    tree = parse(parsers, "matrix.yml")
    (upload,) = (one for one in jobs(tree)["merge"]["steps"] if one.get("name") == "Upload the merged report")
    seen = state(tree, events.event("push"))
    seen.failed = True
    assert parsers.holds(upload, seen)


def given_to_the_action(parsers: Parsers, name: str, event: Event, **inputs: Any) -> dict[str, str]:
    """What the action gets from a workflow."""
    tree = parse(parsers, name)
    (gate,) = (
        step
        for job in jobs(tree).values()
        for step in job["steps"]
        if step.get("uses", "").endswith("/action")
    )
    seen = state(tree, event)
    seen.contexts["inputs"] |= {key.replace("_", "-"): value for key, value in inputs.items()}
    seen.contexts["runner"] = {"temp": "/tmp"}
    seen.contexts["matrix"] = {"runner": {"name": "h200"}}
    seen.steps["place"] = {"outputs": {"file": "/history"}}
    seen.contexts["github"]["workspace"] = "/work"
    return {key: parsers.text(value, seen) for key, value in gate["with"].items()}


@pytest.mark.parametrize("name", ["gate.yml", "gpu-gate.yml", "matrix.yml", "nightly.yml"])
def test_what_is_compared_with(parsers: Parsers, name: str) -> None:
    """A push to the default branch is compared with what was there before; what else there is the action finds itself."""
    push = events.event("push")
    other = replace(push, ref="refs/heads/other")
    assert given_to_the_action(parsers, name, push)["baseline"] == push.payload["before"]
    if name != "gpu-gate.yml":  # its pushes are to main
        assert given_to_the_action(parsers, name, other)["baseline"] == ""
        assert given_to_the_action(parsers, name, push, baseline="v1")["baseline"] == "v1"
    for event in ("schedule", "workflow_dispatch"):
        assert given_to_the_action(parsers, name, events.event(event))["baseline"] == ""
    moved = events.event("pull_request")
    moved.payload["before"] = "5e" * 20  # the head that a pull request had before, on synchronize
    assert given_to_the_action(parsers, name, moved)["baseline"] == ""


def test_an_approved_commit_is_not_compared_with_the_push(parsers: Parsers) -> None:
    """Where a call names the commit, what the branch was before says nothing of it."""
    given = given_to_the_action(parsers, "gate.yml", events.event("push"), sha="1" * 40)
    assert given["baseline"] == ""


@pytest.mark.parametrize("name", ["gate.yml", "matrix.yml", "nightly.yml"])
def test_extras_are_those_of_the_workflows_own_commit(parsers: Parsers, name: str) -> None:
    """They come with the checkout of pytest-cgins; a package of the caller's is taken as it is."""
    push = events.event("push")
    given = given_to_the_action(parsers, name, push, extras="nvcc,sass")
    assert (given["package"], given["extras"]) == ("", "nvcc,sass")
    given = given_to_the_action(parsers, name, push, package="pytest-cgins==1")
    assert (given["package"], given["extras"]) == ("pytest-cgins==1", "")


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("gate.yml", {"strict": "true", "timing": "false", "allow-empty": "true"}),
        ("matrix.yml", {"strict": "true", "timing": "false", "allow-empty": "true"}),
        ("nightly.yml", {}),
    ],
)
def test_inputs_reach_the_action(parsers: Parsers, name: str, passed: dict[str, str]) -> None:
    """What a reusable workflow takes for the action arrives there."""
    texts = {
        "constraints": "c.txt",
        "packs": "a\nb",
        "packs-key": "k",
        "requirements": "r.txt",
        "device": "cuda",
    }
    inputs = texts | {key: value == "true" for key, value in passed.items()}
    given = given_to_the_action(parsers, name, events.event("push"), **inputs)
    assert (texts | passed).items() <= given.items()
    call = parse(parsers, name)["on"]["workflow_call"]["inputs"]
    assert inputs.keys() <= call.keys()


def test_two_histories_of_one_run_share_nothing(parsers: Parsers) -> None:
    """Key, artifacts and queue have the name; no name's key begins with that of another."""
    tree = parse(parsers, "nightly.yml")
    job = jobs(tree)["history"]
    found = []
    for name in ("a", "a-b"):
        seen = state(tree, events.event("schedule"))
        seen.contexts["inputs"]["name"] = name
        with_ = [step["with"] for step in job["steps"] if "with" in step]
        texts = [
            parsers.text(one[key], seen)
            for one in with_
            for key in ("key", "restore-keys", "artifact-name", "name")
            if key in one
        ]
        found.append([*texts, parsers.text(job["concurrency"]["group"], seen)])
    assert [len(set(pair)) for pair in zip(*found, strict=True)] == [2] * 6
    restored = found[0][1]
    assert restored == "cgins-history-a/"
    assert found[0][0].startswith(restored)
    assert not found[1][0].startswith(restored)


def test_comments_follow_runs_of_pull_requests(parsers: Parsers) -> None:
    """The job that comments runs after a pull request's run that was not cancelled, and on no other event."""
    for name in events.NAMES:
        assert not runs(parsers, "comment.yml", "comment", events.event(name))
    event = events.event("workflow_run")
    for started, conclusion, expected in (
        ("pull_request", "failure", True),
        ("pull_request", "cancelled", False),
        ("push", "success", False),
    ):
        event.payload["workflow_run"] |= {"event": started, "conclusion": conclusion}
        assert runs(parsers, "comment.yml", "comment", event) == expected


@pytest.mark.parametrize("file", [FOLDER / "gpu-gate.yml", FOLDER / "gate.yml"], ids=lambda file: file.name)
def test_a_commit_that_was_read_is_named_in_full_and_caches_nothing(parsers: Parsers, file: Path) -> None:
    """What a person starts by hand names 40 digits, and leaves nothing in the cache of the default branch."""
    tree = parse(parsers, file.name)
    steps = jobs(tree)["gate"]["steps"]
    assert "^[0-9a-f]{40}$" in steps[0]["run"]
    (gate,) = (step for step in steps if step.get("uses", "").endswith("/action"))
    seen = state(tree, events.event("workflow_dispatch"))
    seen.contexts["inputs"]["sha"] = "1" * 40
    assert parsers.text(gate["with"]["cache"], seen) == "false"
