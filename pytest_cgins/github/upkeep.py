"""Pull requests of the bot's that are open: how each stands, and the closing of those that nobody needs any more.

All of it is read off git: a branch has one commit, and its parent is what the proposal was made on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cgins.errors import GitHubError
from pytest_cgins.github import notice, own_branch
from pytest_cgins.github.git import Commit
from pytest_cgins.github.own_branch import PROPOSAL
from pytest_cgins.github.server import Server
from pytest_cgins.regenerate.proposal.report import inline

BRANCH = re.compile(r"cgins/(repair|optimize|generate)/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MARKER = re.compile(r"<!-- cgins:pr:([A-Za-z0-9_][A-Za-z0-9_.-]*) -->")

Stands = Literal["current", "behind", "stale", "moot", "changed"]


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
    """`current`: on the tip of its base; `behind`: that has moved elsewhere; `stale`: in the kernel's files; `moot`: it
    has these files; `changed`: a person has committed."""
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
        marker = _MARKER.match(pull["body"] or "")
        if marker is None or not BRANCH.fullmatch(branch) or pull["head"]["label"] != server.head(branch):
            continue
        if base not in tips:
            tips[base] = server.git.fetch(server.url, base)
        head = server.git.fetch(server.url, branch)
        stands, proposal, why = _stands(server, branch, head, base, tips[base])
        yield (
            Known(
                number=int(pull["number"]),
                url=str(pull["html_url"]),
                kernel=marker[1],
                branch=branch,
                head=head or "",
                base=base,
                draft=bool(pull["draft"]),
                stands=stands,
                proposal=proposal,
                why=why,
            ),
            pull,
        )


def mark(server: Server, pairs: Sequence[tuple[Known, dict[str, Any]]]) -> None:
    """Label those that are stale, and take the label from those that are not.

    Raises:
        GitHubError: GitHub refuses.
    """
    for one, pull in pairs:
        if one.stands == "stale":
            notice.mark_stale(server, pull, _marker(one), inline(one.why))
        elif one.stands in ("current", "behind"):
            notice.unmark_stale(server, pull, _marker(one))


def close(server: Server, one: Known, pull: dict[str, Any], reason: str, *, dry_run: bool) -> Closed:
    """Close a pull request with a comment, and delete its branch if all of it is the bot's.

    Raises:
        GitHubError: GitHub refuses.
    """
    tip = one.head if one.stands != "changed" and one.head else None
    if not dry_run:
        notice.close(server, pull, _marker(one), inline(reason), tip=tip)
    return Closed(known=one, branch_kept=one.why if tip is None else "")


def _marker(one: Known) -> str:
    return f"<!-- cgins:notice:{one.kernel} -->"


def _stands(
    server: Server, branch: str, head: str | None, base: str, tip: str | None
) -> tuple[Stands, str, str]:
    if tip is None:
        return "stale", "", f"there is no branch {base} any more"
    if head is None:
        return "changed", "", f"there is no branch {branch} any more"
    try:
        own = own_branch.own_commit(server.git, head, tip, branch)
    except GitHubError as error:
        return "changed", "", error.what
    if own is None:
        return "moot", "", f"{base} has all of {branch}"
    return _of_commit(server, own, base, tip)


def _of_commit(server: Server, own: Commit, base: str, tip: str) -> tuple[Stands, str, str]:
    git, proposal, [parent] = server.git, own.trailers[PROPOSAL], own.parents
    if parent == tip:
        return "current", proposal, ""
    files = git.files_of(own.id)
    if all(git.entry(tip, path) == git.entry(own.id, path) for path in files):
        return "moot", proposal, f"{base} has these files"
    moved = [path for path in files if git.entry(tip, path) != git.entry(parent, path)]
    if moved:
        return "stale", proposal, f"{base} has changed {', '.join(moved)}"
    return "behind", proposal, f"{base} has moved on elsewhere"
