"""Events as GitHub sends them, and the `github` context that a run of each has.

The payloads are those of octokit's collection. `schedule` sends no webhook: its payload is that of a push without the
commits, with the line of the timetable, as GitHub's documents say. A fork is made of a pull request by naming another head
repository, for the collection has none from a fork.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tests.action.github_parsers import examples

NAMES = ("pull_request", "fork", "push", "workflow_dispatch", "schedule")
MERGE = "1f" * 20
"""Commit of the merge that a pull request's run checks out."""


@dataclass(frozen=True)
class Event:
    """One event and what a run knows of it."""

    name: str
    """GitHub's."""
    payload: dict[str, Any]
    """What GITHUB_EVENT_PATH has."""
    ref: str
    sha: str
    base_ref: str = ""
    head_ref: str = ""

    @property
    def repository(self) -> str:
        name: str = self.payload["repository"]["full_name"]
        return name

    def context(self) -> dict[str, Any]:
        """The `github` context."""
        return {
            "event_name": self.name,
            "event": self.payload,
            "ref": self.ref,
            "ref_name": self.ref.removeprefix("refs/heads/").removeprefix("refs/"),
            "sha": self.sha,
            "base_ref": self.base_ref,
            "head_ref": self.head_ref,
            "repository": self.repository,
            "repository_owner": self.repository.partition("/")[0],
            "workflow": "Kernels",
            "run_id": "4711",
            "run_number": "12",
            "run_attempt": "1",
            "token": "the-job's-own-token",
            "server_url": "https://github.com",
            "api_url": "https://api.github.com",
        }

    def variables(self) -> dict[str, str]:
        """Those of the runner that tell of the event, but for the path of the payload."""
        context = self.context()
        names = ("event_name", "ref", "ref_name", "sha", "base_ref", "head_ref", "repository", "run_id")
        return {f"GITHUB_{name.upper()}": context[name] for name in names}


def event(name: str) -> Event:
    """One of `NAMES`."""
    if name in ("pull_request", "fork"):
        return _pull_request(fork=name == "fork")
    if name == "workflow_run":
        payload = next(
            one for one in examples(name) if one["action"] == "completed" and one["workflow_run"].get("path")
        )
        return Event(name, payload, f"refs/heads/{_branch(payload)}", "2a" * 20)
    if name == "workflow_dispatch":
        payload = next(one for one in examples(name) if one["ref"] == f"refs/heads/{_branch(one)}")
        return Event(name, payload, payload["ref"], "3b" * 20)
    push = next(one for one in examples("push") if one["ref"] == f"refs/heads/{_branch(one)}")
    if name == "push":
        return Event(name, push, push["ref"], push["after"])
    payload = {"schedule": "17 3 * * *", "repository": push["repository"], "workflow": "nightly.yml"}
    return Event("schedule", payload, push["ref"], push["after"])


def _pull_request(*, fork: bool) -> Event:
    payload = copy.deepcopy(next(one for one in examples("pull_request") if one["action"] == "opened"))
    head = payload["pull_request"]["head"]
    if fork:
        head["repo"] |= {"full_name": "stranger/Hello-World", "fork": True, "id": head["repo"]["id"] + 1}
        head["label"] = f"stranger:{head['ref']}"
    base = payload["pull_request"]["base"]["ref"]
    ref = f"refs/pull/{payload['number']}/merge"
    return Event("pull_request", payload, ref, MERGE, base_ref=base, head_ref=head["ref"])


def _branch(payload: dict[str, Any]) -> str:
    branch: str = payload["repository"]["default_branch"]
    return branch
