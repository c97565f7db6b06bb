"""One comment of a pull request that says what the gate found, and is rewritten by each run.

Which pull request that is follows from GitHub's event and from GitHub's answers, never from the report: a
report comes from a run of the pull request's own code. So do its words, which `report` escapes. The comment
is known again by a hidden marker and by who wrote it, since anybody can write the marker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.core.text import counted
from pytest_cgins.core.waiting import Wait
from pytest_cgins.pull_request.rest import Rest, plain

LIMIT_CHARACTERS = 60_000
"""GitHub refuses more than 65,536."""
TRIES = 3
"""Times that a comment is looked for and written."""
SERVER_ERRORS = 500
AUTHOR = "github-actions[bot]"
"""Who comments with a workflow's own token."""
_NAME = re.compile(r"[A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+)*")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

State = Literal["created", "updated", "unchanged", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTarget:
    """The pull request that a run was for."""

    number: int
    """Of the pull request; 0 where it has moved on or was closed, or there is none, or several."""
    commit: str
    """Its head when the run began."""
    several: bool = False
    """Whether several open pull requests have that head, so that nobody knows whose run it was."""
    branch: str = ""
    """That its head is, in the repository itself; "" where that is in a fork."""


def run_target(event: dict[str, Any], rest: Rest) -> RunTarget:
    """Which pull request an event is about: what GITHUB_EVENT_PATH has, of `workflow_run` or `pull_request`.

    Raises:
        GitHubError: the event is another one.
    """
    run, pull = event.get("workflow_run"), event.get("pull_request")
    try:
        if run is not None:
            if run["event"] != "pull_request":
                return RunTarget(number=0, commit=_commit(run["head_sha"]))
            head = f"{run['head_repository']['owner']['login']}:{run['head_branch']}"
            commit = _commit(run["head_sha"])
            # GitHub leaves `pull_requests` of the event empty where the head is in a fork.
            numbers = [
                opened["number"] for opened in rest.pulls(head=head) if opened["head"]["sha"] == commit
            ]
            number = numbers[0] if len(numbers) == 1 else 0
            branch = _branch(event, run["head_repository"], run["head_branch"])
            return RunTarget(number=number, commit=commit, several=len(numbers) > 1, branch=branch)
        if pull is not None:
            branch = _branch(event, pull["head"]["repo"], pull["head"]["ref"])
            return RunTarget(number=int(pull["number"]), commit=_commit(pull["head"]["sha"]), branch=branch)
    except (KeyError, TypeError, ValueError):
        raise _unknown() from None
    raise _unknown()


def marker(name: str) -> str:
    """The hidden line by which a comment is known again.

    Raises:
        GitHubError: the name cannot stand in one.
    """
    if not _NAME.fullmatch(name) or len(name) > 100:
        raise GitHubError(
            f"{name[:80]!r} cannot name a comment",
            remedy="use letters, digits, dots, underscores, single dashes",
        )
    return f"<!-- cgins:comment:{name} -->"


def body(name: str, target: RunTarget, text: str) -> str:
    """The whole comment: marker, the report's markdown, and the commit that it is about."""
    return f"{marker(name)}\n{text.rstrip()}\n\n<sub>{target.commit}</sub>\n"


def post(
    rest: Rest, number: int, text: str, *, author: str = AUTHOR, creates: bool = True
) -> tuple[State, str]:
    """Write the comment, whose first line is its marker, or rewrite the author's earlier one; its address.

    Where there is none and none is to be created it is `absent`, without an address.

    Raises:
        GitHubError: the text is too long, or GitHub refuses.
    """
    if len(text) > LIMIT_CHARACTERS:
        raise GitHubError(
            f"the comment has {counted(len(text), 'character')}", remedy=f"give it {LIMIT_CHARACTERS} at most"
        )
    with Wait(f"the comment on #{number}") as wait:
        for tried in range(1, TRIES + 1):
            there = own(rest, number, text.partition("\n")[0], author)
            if there is not None:
                if plain(there["body"]) == text.strip():
                    return "unchanged", there["html_url"]
                return "updated", rest.update_comment(there["id"], text)["html_url"]
            if not creates:
                return "absent", ""
            try:
                return "created", rest.create_comment(number, text)["html_url"]
            except GitHubError as error:
                # It may be there: no answer came, or one of a server in trouble.
                if tried == TRIES or 0 < error.status < SERVER_ERRORS:
                    raise
                wait.sleep(float(tried), f"try {tried} of {TRIES}: {error.what}")
    raise AssertionError("the last try returns or raises")


def own(rest: Rest, number: int, marker: str, author: str) -> dict[str, Any] | None:
    """The first comment of an author that begins with the marker."""
    for comment in rest.comments(number):
        login = (comment["user"] or {}).get("login")
        if login == author and plain(comment["body"]).partition("\n")[0] == marker:
            return comment
    return None


def _branch(event: dict[str, Any], head: dict[str, Any] | None, branch: str) -> str:
    """A branch of the repository itself; "" for one of a fork, which may be gone."""
    own = event.get("repository") or {}
    return branch if head is not None and head.get("id") == own.get("id") is not None else ""


def _commit(text: str) -> str:
    if not _SHA.fullmatch(text):
        raise ValueError(text)
    return text


def _unknown() -> GitHubError:
    return GitHubError(
        "the event names no pull request",
        remedy="run it on the events workflow_run or pull_request of GitHub",
    )
