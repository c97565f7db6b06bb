"""A kernel's branch: one commit of the bot's, whose trailers say of which proposal, on what, and with which files.

What is not as it says was changed by a person, and is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.errors import GitHubError
from pytest_cgins.github.contribution import Contribution
from pytest_cgins.github.git import Commit, Git

PROPOSAL, MADE, BASE, TREE = "Cgins-Proposal", "Cgins-Made", "Cgins-Base", "Cgins-Tree"
"""Trailers of a commit: ID of the proposal, when that was made, the commit it stands on, and its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the bot's commit says of itself."""

    proposal: str
    """ID of the proposal."""
    made: str
    """When that was made: UTC, ISO 8601."""


def trailers(contribution: Contribution, parent: str, tree: str) -> dict[str, str]:
    """The trailers of a commit of the bot's."""
    return {PROPOSAL: contribution.proposal, MADE: contribution.made, BASE: parent, TREE: tree}


def message(contribution: Contribution, parent: str, tree: str) -> str:
    """The message of a commit of the bot's."""
    lines = "\n".join(f"{key}: {value}" for key, value in trailers(contribution, parent, tree).items())
    return f"{contribution.title}\n\nFound by a model, and accepted by the gate.\n\n{lines}\n"


def said(trailers: dict[str, str], tree: str, parents: tuple[str, ...]) -> Said | None:
    """What a commit says of itself; None if it is not as the bot made it.

    Amended, rebased or merged it has other files or parents than its trailers tell.
    """
    if PROPOSAL not in trailers or trailers.get(TREE) != tree or (trailers.get(BASE),) != parents:
        return None
    return Said(proposal=trailers[PROPOSAL], made=trailers.get(MADE, ""))


def said_by_rest(commit: dict[str, object]) -> Said | None:
    """The same of a commit as the REST API shows it."""
    tree, parents = commit["tree"], commit["parents"]
    if not isinstance(tree, dict) or not isinstance(parents, list):
        return None
    lines = str(commit["message"]).replace("\r\n", "\n").rstrip().rpartition("\n\n")[2].splitlines()
    pairs = (line.partition(": ") for line in lines)
    found = {key: value.strip() for key, colon, value in pairs if colon}
    return said(found, str(tree["sha"]), tuple(str(one["sha"]) for one in parents))


def own_commit(git: Git, tip: str, base: str, branch: str) -> Commit | None:
    """The bot's commit at the tip of a branch; None if all of the branch is in the base.

    Args:
        git: of the clone, which has both commits.
        tip: of the branch.
        base: tip of the base branch.
        branch: its name.

    Raises:
        GitHubError: the branch has commits of others.
    """
    commits = git.commits(tip, base)
    others = []
    for commit in commits:
        if said(commit.trailers, commit.tree, commit.parents) is not None:
            break
        others.append(commit)
    if others:
        who = ", ".join(sorted({commit.author for commit in others}))
        raise GitHubError(
            f"{branch} has {len(others)} commits that are not the bot's, by {who}: nothing was changed",
            remedy="merge them, or move them to another branch and delete this one",
        )
    return commits[0] if commits else None
