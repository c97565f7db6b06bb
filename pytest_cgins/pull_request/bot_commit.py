"""The one commit of a kernel's branch; its trailers name the proposal, the base and the files.

What is not as the bot makes it was changed by a person, and is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.clone import Commit
from pytest_cgins.pull_request.contribution import BRANCH, Contribution
from pytest_cgins.pull_request.post_comment import RunTarget
from pytest_cgins.pull_request.rest import Rest
from pytest_cgins.regenerate.proposal.report import inline

PROPOSAL, MADE, BASE, TREE = "Cgins-Proposal", "Cgins-Made", "Cgins-Base", "Cgins-Tree"
"""Trailers of a commit: ID of the proposal, when that was made, the commit it stands on, and its files."""
GITHUB = "noreply@github.com"
"""Committer of what GitHub makes for a person."""
_WORDS = "Found by a model, and accepted by the gate."
_MESSAGE = re.compile(
    r"(?:Repair|Speed up|Add) \S+ \(\S+ on (?:cpu|cuda)\)\n\n"
    + re.escape(_WORDS)
    + rf"\n\n{PROPOSAL}: (?P<proposal>\S+)\n{MADE}: (?P<made>\S+)"
    rf"\n{BASE}: (?P<base>\S+)\n{TREE}: (?P<tree>\S+)"
    r"(?P<more>(?:\n[A-Z][A-Za-z-]*: [^\n]*)*)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BotCommit:
    """The bot's commit, as it says of itself and as it is."""

    id: str
    parent: str
    """The commit of the base branch that it stands on."""
    tree: str
    proposal: str
    made: str
    """When that was made: UTC, ISO 8601."""

    def is_of(self, contribution: Contribution, parent: str, tree: str) -> bool:
        """Whether it is what would be made of a contribution now."""
        trailers = (self.proposal, self.made, self.parent, self.tree)
        return trailers == (contribution.proposal, contribution.made, parent, tree)


def message(contribution: Contribution, parent: str, tree: str) -> str:
    """The message of a commit of the bot's."""
    values = {PROPOSAL: contribution.proposal, MADE: contribution.made, BASE: parent, TREE: tree}
    lines = "\n".join(f"{key}: {value}" for key, value in values.items())
    return f"{contribution.title}\n\n{_WORDS}\n\n{lines}\n"


def of_commit(commit: Commit) -> BotCommit | None:
    """What a commit says of itself; None if it is not as the bot made it.

    Amended, rebased or merged it has other files, parents, words or another committer than its author. GitHub
    itself commits for people, and may add lines to the end.
    """
    trailers = _MESSAGE.fullmatch(commit.message.replace("\r\n", "\n").strip())
    if trailers is None or commit.parents != (trailers["base"],) or commit.tree != trailers["tree"]:
        return None
    if commit.committer != GITHUB and (commit.committer != commit.author or trailers["more"]):
        return None
    return BotCommit(
        id=commit.id,
        parent=trailers["base"],
        tree=commit.tree,
        proposal=trailers["proposal"],
        made=trailers["made"],
    )


def of_rest(commit: dict[str, Any]) -> BotCommit | None:
    """The same of a commit as the REST API shows it."""
    return of_commit(
        Commit(
            id=str(commit["sha"]),
            tree=str(commit["tree"]["sha"]),
            parents=tuple(str(parent["sha"]) for parent in commit["parents"]),
            author=str(commit["author"]["email"]),
            committer=str(commit["committer"]["email"]),
            message=str(commit["message"]),
        )
    )


def carried_proposal(rest: Rest, target: RunTarget) -> str:
    """For the gate's comment: markdown about the proposal in a pull request; "" where there is none.

    Told are only a branch of the repository itself and its commit: anybody can write the marker into a
    description, and a fork's branch can have any name.
    """
    if not BRANCH.fullmatch(target.branch):
        return ""
    try:
        own = of_rest(rest.commit(target.commit))
    except GitHubError as error:
        if error.status in (403, 404, 422):
            # The token may not read commits, or GitHub does not know it yet: nothing is said then.
            return ""
        raise
    if own is None:
        return (
            "\n\n<p>This branch is the bot's, and people have committed to it: what the description tells of "
            "a proposal was measured without that.</p>\n"
        )
    return (
        f"\n\n<p>By its commit this pull request carries the proposal {inline(own.proposal)} as it was made, "
        f"of {inline(own.made)}. What its own gate measured then is in the description; what is above was "
        "measured again.</p>\n"
    )
