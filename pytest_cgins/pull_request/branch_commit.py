"""A commit on a kernel's branch: signed by GitHub where that can be, else made and pushed by git.

Of an App's or a workflow's token GitHub signs what the REST API commits: a tree and a commit are written that
nobody sees, and then the branch is set, in one step. For a person's token it signs only what
`createCommitOnBranch` adds to a branch, which is done on a staging branch that is there for a moment. Either
way the tree must be, by its id, the one that was checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.clone import BranchMovedError, Identity
from pytest_cgins.pull_request.graphql import RefChange, UnavailableError
from pytest_cgins.pull_request.server import Server

How = Literal["auto", "api", "push"]
STAGING = "cgins/staging/"
"""Where the branches are that are there for a moment; after it the kernel's branch, `/` as `-`."""
IDENTITY = Identity(name="pytest-cgins[bot]", email="pytest-cgins[bot]@users.noreply.github.com")
"""Author and committer of what git pushes, unless others are named."""
_LEFT_TO_GIT = (404, 405, 409, 413, 422, 501)
"""Refusals by the API after which git may still be let in. Of others git would hear the same, or they pass,
and are no reason for a commit that nobody signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The one commit that a branch is to have on its base."""

    branch: str
    before: str | None
    """Tip that it has now; None: it is not there."""
    parent: str
    """Tip of the base branch."""
    tree: str
    """Of all files, as it must come out."""
    files: Mapping[str, bytes]
    """New bytes by path."""
    message: str
    """First line, an empty line, and the rest."""
    identity: Identity | None = None
    """Author and committer; None: whose token it is, or the bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """How a commit came to be."""

    commit: str
    signed: bool
    """Whether GitHub has signed it."""
    note: str = ""
    """Why it is not signed; "" where it is."""


def commit_to_branch(server: Server, request: CommitRequest, how: How = "auto") -> CommitResult:
    """Give a branch its commit; `auto` takes git where the API cannot.

    Raises:
        BranchMovedError: the branch is not as it was seen.
    """
    if how == "push" or (how == "auto" and request.identity is not None):
        why = "--author was given" if request.identity is not None else "--commit-with push was given"
        return _pushed(server, request, why)
    try:
        return _written(server, request) if server.is_bot() else _staged(server, request)
    except BranchMovedError:
        raise
    except GitHubError as error:
        refused = isinstance(error, UnavailableError) or error.status in _LEFT_TO_GIT
        if how == "api" or not refused:
            raise
        return _pushed(server, request, f"the API did not take it: {error.what}")


def _written(server: Server, request: CommitRequest) -> CommitResult:
    clone, rest = server.clone, server.rest
    modes = {path: clone.entry(request.parent, path) for path in request.files}
    entries = [
        {"path": path, "mode": (modes[path] or ("100644",))[0], "type": "blob", "content": content.decode()}
        for path, content in sorted(request.files.items())
    ]
    _require_tree(rest.create_tree(clone.tree_of(request.parent), entries), request)
    made = rest.create_commit(request.message, request.tree, request.parent)
    commit, signed = str(made["sha"]), bool(made["verification"]["verified"])
    server.change_branches([RefChange(branch=request.branch, before=request.before, after=commit)])
    return _by_github(commit, signed=signed)


def _staged(server: Server, request: CommitRequest) -> CommitResult:
    staging = STAGING + request.branch.removeprefix("cgins/").replace("/", "-")
    left = server.rest.branch(staging)
    if left != request.parent:
        server.change_branches([RefChange(branch=staging, before=left, after=request.parent)])
    try:
        made = server.graphql.create_commit(staging, request.parent, request.message, request.files)
    except GitHubError as error:
        # The commit may be there, with its answer lost; what it would have told is not worth asking for.
        if server.rest.branch(staging) != request.parent:
            raise BranchMovedError(error.what, remedy=error.remedy) from None
        _unstage(server, staging, request.parent)
        raise
    if made.tree != request.tree:
        _unstage(server, staging, made.commit)
        _require_tree(made.tree, request)
    moved = RefChange(branch=request.branch, before=request.before, after=made.commit)
    try:
        server.change_branches([moved, RefChange(branch=staging, before=made.commit, after=None)])
    except GitHubError:
        _unstage(server, staging, made.commit)
        raise
    return _by_github(made.commit, signed=made.signed)


def _by_github(commit: str, *, signed: bool) -> CommitResult:
    return CommitResult(
        commit=commit, signed=signed, note="" if signed else "the server signs no commits of this token"
    )


def _unstage(server: Server, staging: str, expected: str) -> None:
    """Delete the staging branch if nobody else works there; errors are not told: the one that led here is."""
    with suppress(GitHubError):
        server.delete_branch(staging, expected)


def _pushed(server: Server, request: CommitRequest, why: str) -> CommitResult:
    identity = request.identity or IDENTITY
    commit = server.clone.commit(request.tree, request.parent, request.message, identity)
    server.clone.push(server.url, commit, request.branch, expected=request.before)
    return CommitResult(commit=commit, signed=False, note=why)


def _require_tree(tree: str, request: CommitRequest) -> None:
    if tree != request.tree:
        raise GitHubError(
            f"GitHub made the tree {tree[:12]} of the files, and {request.tree[:12]} was checked",
            remedy="use --commit-with push",
            status=422,
        )
