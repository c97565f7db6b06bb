"""The bot's open pull requests: how each stands, and the closing of those that nobody needs any more.

All of it is read off git: a branch has one commit, and its parent is what the proposal was made on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cgins.pull_request import notice
from pytest_cgins.pull_request.branch_status import BranchState, branch_status, of_this_repository
from pytest_cgins.pull_request.contribution import BRANCH, notice_marker
from pytest_cgins.pull_request.server import Server
from pytest_cgins.regenerate.proposal.report import inline

_MARKER = re.compile(r"<!-- cgins:pr:([A-Za-z0-9_][A-Za-z0-9_.-]*) -->")


@dataclass(frozen=True, slots=True, kw_only=True)
class BotPullRequest:
    """One open pull request of the bot's."""

    number: int
    url: str
    kernel: str
    """`softmax-cuda-triton`."""
    branch: str
    """The kernel's own."""
    head: str
    """Its tip; "" if it is gone."""
    base: str
    draft: bool
    stands: BranchState
    """How its branch stands to its base."""
    proposal: str
    """ID of the proposal; "" where a person has committed."""
    why: str
    """In a sentence; "" where all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseResult:
    """A pull request that was closed, or would be."""

    known: BotPullRequest
    """How it stood."""
    branch_kept: str
    """Why its branch was left; "" where it was deleted."""


def known(server: Server) -> Iterator[tuple[BotPullRequest, dict[str, Any]]]:
    """The bot's open pull requests, newest first, and each as GitHub shows it."""
    tips: dict[str, str | None] = {}
    for pull in server.rest.pulls():
        branch, base = str(pull["head"]["ref"]), str(pull["base"]["ref"])
        marker = _MARKER.search(pull["body"] or "")
        if not (marker and BRANCH.fullmatch(branch) and of_this_repository(server, pull, branch)):
            continue
        if base not in tips:
            tips[base] = server.clone.fetch(server.url, base)
        head = server.clone.fetch(server.url, branch)
        status = branch_status(server.clone, branch, head, base, tips[base])
        yield (
            BotPullRequest(
                number=int(pull["number"]),
                url=str(pull["html_url"]),
                kernel=marker[1],
                branch=branch,
                head=head or "",
                base=base,
                draft=bool(pull["draft"]),
                stands=status.stands,
                proposal=status.own.proposal if status.own else "",
                why=status.why,
            ),
            pull,
        )


def mark(server: Server, pairs: Sequence[tuple[BotPullRequest, dict[str, Any]]]) -> list[str]:
    """Label those that are stale, and take the label from those that are not; what was not done, and why."""
    notes: list[str] = []
    for known, pull in pairs:
        marker = notice_marker(known.kernel)
        if known.stands == "stale":
            notes += notice.mark_stale(server, pull, marker, inline(known.why))
        elif known.stands in ("current", "behind"):
            notice.unmark_stale(server, pull, marker)
    return notes


def close(
    server: Server, pull_request: BotPullRequest, pull: dict[str, Any], reason: str, *, dry_run: bool
) -> CloseResult:
    """Close a pull request with a comment, and delete its branch if all of it is the bot's.

    Raises:
        BranchMovedError: somebody committed meanwhile, and it was left.
    """
    tip = pull_request.head if pull_request.stands != "changed" and pull_request.head else None
    if not dry_run:
        how = notice.MOOT if pull_request.stands == "moot" else "**Closed.**"
        notice.close(server, pull, notice_marker(pull_request.kernel), f"{how} {inline(reason)}", tip=tip)
    return CloseResult(known=pull_request, branch_kept=pull_request.why if tip is None else "")
