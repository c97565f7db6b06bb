"""How the bot's commit on a kernel's branch stands to the base branch, by git and not by proposals."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.core.text import counted
from pytest_cgins.pull_request import bot_commit
from pytest_cgins.pull_request.bot_commit import BotCommit
from pytest_cgins.pull_request.clone import Clone
from pytest_cgins.pull_request.server import Server

BranchState = Literal["current", "behind", "stale", "moot", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchStatus:
    """A branch beside its base."""

    stands: BranchState
    """`current`: on the tip of its base; `behind`: that has moved elsewhere; `stale`: in the kernel's files;
    `moot`: it has these files; `changed`: a person has committed."""
    own: BotCommit | None
    """The bot's commit; None where there is none, or a person has committed."""
    why: str
    """In a sentence; "" where all is well."""


def branch_status(clone: Clone, branch: str, head: str | None, base: str, tip: str | None) -> BranchStatus:
    """How a branch at `head` stands to its base at `tip`, both in the clone; None for one that is gone."""
    if tip is None:
        return BranchStatus(stands="stale", own=None, why=f"there is no branch {base} any more")
    if head is None:
        return BranchStatus(stands="changed", own=None, why=f"there is no branch {branch} any more")
    try:
        commits = clone.commits(head, tip)
    except GitHubError as error:
        return BranchStatus(stands="changed", own=None, why=error.what)
    if not commits:
        return BranchStatus(stands="moot", own=None, why=f"{base} has all of {branch}")
    own = bot_commit.of_commit(commits[0])
    if own is None:
        others = list(itertools.takewhile(lambda commit: bot_commit.of_commit(commit) is None, commits))
        who = ", ".join(sorted({commit.committer for commit in others}))
        count = counted(len(others), "commit that is", "commits that are")
        why = f"{branch} has {count} not the bot's, by {who}: nothing was changed"
        return BranchStatus(stands="changed", own=None, why=why)
    if own.parent == tip:
        return BranchStatus(stands="current", own=own, why="")
    return _moved(clone, own, base, tip)


def _moved(clone: Clone, own: BotCommit, base: str, tip: str) -> BranchStatus:
    files = clone.changed(own.parent, own.id)
    try:
        now = {path: clone.entry(tip, path) for path in files}
    except GitHubError as error:
        return BranchStatus(stands="stale", own=own, why=error.what)
    if all(now[path] == clone.entry(own.id, path) for path in files):
        return BranchStatus(stands="moot", own=own, why=f"{base} has these files")
    moved = [path for path in files if now[path] != clone.entry(own.parent, path)]
    if moved:
        return BranchStatus(stands="stale", own=own, why=f"{base} has changed {', '.join(moved)}")
    return BranchStatus(stands="behind", own=own, why=f"{base} has moved on elsewhere")


def of_this_repository(server: Server, pull: dict[str, Any], branch: str) -> bool:
    """Whether a pull request's branch is the repository's own: any fork can have a branch of that name."""
    head, base = pull["head"], pull["base"]
    if head["ref"] != branch or head["label"] != server.head(branch):
        return False
    return head["repo"] is not None and head["repo"]["id"] == base["repo"]["id"]
