"""Branches on the server, changed only if they are as they were seen."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.clone import BranchMovedError
from pytest_cgins.pull_request.graphql import RefChange, UnavailableError
from pytest_cgins.pull_request.server import Server


def change(server: Server, changes: Sequence[RefChange]) -> None:
    """Change branches: all or none, where the server has the GraphQL API; else one after the other.

    What is there already is not done again, so that a lost answer does no harm.

    Raises:
        BranchMovedError: one of them is not as expected.
        GitHubError: GitHub refuses.
    """
    try:
        server.graphql.update_refs(server.node_id, changes)
    except UnavailableError:
        for one in changes:
            _change(server, one)
    except GitHubError as error:
        seen = [server.rest.branch(one.branch) for one in changes]
        if seen == [one.after for one in changes]:
            return
        for one, now in zip(changes, seen, strict=True):
            _require(one, now)
        raise error from None


def delete(server: Server, branch: str, expected: str) -> None:
    """Delete a branch that has a certain tip.

    Raises:
        BranchMovedError: it has another one.
        GitHubError: GitHub refuses.
    """
    change(server, [RefChange(branch=branch, before=expected, after=None)])


def _change(server: Server, one: RefChange) -> None:
    """The same by the REST API, which overwrites what comes between the look and the change."""
    rest = server.rest
    now = rest.branch(one.branch)
    if now == one.after:
        return
    _require(one, now)
    try:
        if one.after is None:
            rest.delete_branch(one.branch)
        elif one.before is None:
            rest.create_branch(one.branch, one.after)
        else:
            rest.move_branch(one.branch, one.after)
    except GitHubError:
        now = rest.branch(one.branch)
        if now == one.after:
            return
        _require(one, now)
        raise


def _require(one: RefChange, now: str | None) -> None:
    if now != one.before:
        raise BranchMovedError(
            f"{one.branch} is at {(now or 'nothing')[:12]} on the server, and was at {(one.before or 'nothing')[:12]}",
            remedy="the branch was changed by somebody else meanwhile: look at it, and run the command again",
        )
