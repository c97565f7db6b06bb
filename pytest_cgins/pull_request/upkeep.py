"""Pull requests of the bot's that are open: how each stands, and the closing of those that nobody needs any more.

All of it is read off git: a branch has one commit, and its parent is what the proposal was made on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cgins.pull_request import notice
from pytest_cgins.pull_request.branch_status import Standing, Stands, of_this_repository, standing
from pytest_cgins.pull_request.contribution import BRANCH, notice_marker
from pytest_cgins.pull_request.server import Server
from pytest_cgins.regenerate.proposal.report import inline

_MARKER = re.compile(r"<!-- cgins:pr:([A-Za-z0-9_][A-Za-z0-9_.-]*) -->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One open pull request of the bot's."""

    number: int
    """Of the pull request."""
    url: str
    """For a browser."""
    kernel: str
    """`softmax-cuda-triton`."""
    branch: str
    """The kernel's own."""
    head: str
    """Its tip; "" if it is gone."""
    base: str
    """Branch that it goes into."""
    draft: bool
    """Whether it is a draft."""
    stands: Stands
    """How its branch stands to its base."""
    proposal: str
    """ID of the proposal; "" where a person has committed."""
    why: str
    """In a sentence; "" where all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A pull request that was closed, or would be."""

    known: Known
    """How it stood."""
    branch_kept: str
    """Why its branch was left; "" where it was deleted."""


def known(server: Server) -> Iterator[tuple[Known, dict[str, Any]]]:
    """The bot's open pull requests, newest first, and each as GitHub shows it.

    Raises:
        GitHubError: git or GitHub refuses.
    """
    tips: dict[str, str | None] = {}
    for pull in server.rest.pulls():
        branch, base = str(pull["head"]["ref"]), str(pull["base"]["ref"])
        marker = _MARKER.search(pull["body"] or "")
        if not (marker and BRANCH.fullmatch(branch) and of_this_repository(server, pull, branch)):
            continue
        if base not in tips:
            tips[base] = server.clone.fetch(server.url, base)
        head = server.clone.fetch(server.url, branch)
        found = _standing(server, branch, head, base, tips[base])
        yield (
            Known(
                number=int(pull["number"]),
                url=str(pull["html_url"]),
                kernel=marker[1],
                branch=branch,
                head=head or "",
                base=base,
                draft=bool(pull["draft"]),
                stands=found.stands,
                proposal=found.own.proposal if found.own else "",
                why=found.why,
            ),
            pull,
        )


def mark(server: Server, pairs: Sequence[tuple[Known, dict[str, Any]]]) -> list[str]:
    """Label those that are stale, and take the label from those that are not; what was not done, and why.

    Raises:
        GitHubError: GitHub refuses.
    """
    notes: list[str] = []
    for one, pull in pairs:
        marker = notice_marker(one.kernel)
        if one.stands == "stale":
            notes += notice.mark_stale(server, pull, marker, inline(one.why))
        elif one.stands in ("current", "behind"):
            notice.unmark_stale(server, pull, marker)
    return notes


def close(server: Server, one: Known, pull: dict[str, Any], reason: str, *, dry_run: bool) -> Closed:
    """Close a pull request with a comment, and delete its branch if all of it is the bot's.

    Raises:
        BranchMovedError: somebody committed meanwhile, and it was left.
        GitHubError: GitHub refuses.
    """
    tip = one.head if one.stands != "changed" and one.head else None
    if not dry_run:
        how = notice.MOOT if one.stands == "moot" else "**Closed.**"
        notice.close(server, pull, notice_marker(one.kernel), f"{how} {inline(reason)}", tip=tip)
    return Closed(known=one, branch_kept=one.why if tip is None else "")


def _standing(server: Server, branch: str, head: str | None, base: str, tip: str | None) -> Standing:
    if tip is None:
        return Standing(stands="stale", own=None, why=f"there is no branch {base} any more")
    return standing(server.clone, branch, head, base, tip)
