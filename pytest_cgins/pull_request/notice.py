"""A pull request that is stale or moot: one comment, rewritten and never doubled, and a label say so."""

from __future__ import annotations

from typing import Any

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import post_comment
from pytest_cgins.pull_request.clone import BranchMovedError
from pytest_cgins.pull_request.server import Server

STALE = "cgins: stale"
"""The label."""
MOOT = "**Moot.**"
"""How the comment begins where the bot closed it by itself."""
_REFUSED = (403, 404, 422)


def mark_stale(server: Server, pull: dict[str, Any], marker: str, why: str) -> tuple[str, ...]:
    """Say in a comment why a pull request is stale, in markdown, and label it; done twice it changes nothing.

    Returns:
        Why there is no label, if GitHub refuses it: to make one that is new takes a right of its own.
    """
    _say(server, pull, f"{marker}\n**Stale.** {why}\n")
    if _is_marked(pull):
        return ()
    try:
        server.rest.add_labels(int(pull["number"]), [STALE])
    except GitHubError as error:
        if error.status not in _REFUSED:
            raise
        return (f'there is no label "{STALE}": make it once, or give the token issues: write ({error.what})',)
    return ()


def unmark_stale(server: Server, pull: dict[str, Any], marker: str) -> None:
    """Remove the stale label, if present, and say so in the comment."""
    if not _is_marked(pull):
        return
    _say(server, pull, f"{marker}\nIt was stale, and has another commit now.\n")
    try:
        server.rest.remove_label(int(pull["number"]), STALE)
    except GitHubError as error:
        if error.status != 404:
            raise


def close(server: Server, pull: dict[str, Any], marker: str, why: str, *, tip: str | None) -> None:
    """Say why in markdown that begins in bold, delete the branch, and close; each step may have been done before.

    `tip` is the bot's own commit on the branch; None leaves the branch.

    Raises:
        BranchMovedError: somebody committed meanwhile; the pull request stays open.
    """
    branch = str(pull["head"]["ref"])
    if pull["state"] == "open":
        _say(server, pull, f"{marker}\n{why}\n")
    if tip is not None:
        try:
            server.delete_branch(branch, tip)
        except BranchMovedError:
            if pull["state"] == "open":
                _say(server, pull, f"{marker}\nIt was to be closed, and somebody committed meanwhile.\n")
            raise
    if pull["state"] == "open":
        server.rest.update_pull(int(pull["number"]), state="closed")


def was_moot(server: Server, pull: dict[str, Any], marker: str) -> bool:
    """Whether the bot closed a pull request by itself, and no person did."""
    text = post_comment.own(server.rest, int(pull["number"]), marker, _author(server, pull))
    return text is not None and MOOT in str(text["body"])


def _is_marked(pull: dict[str, Any]) -> bool:
    return any(label["name"] == STALE for label in pull["labels"])


def _author(server: Server, pull: dict[str, Any]) -> str:
    return server.login() or str((pull["user"] or {}).get("login", ""))


def _say(server: Server, pull: dict[str, Any], text: str) -> None:
    post_comment.post(server.rest, int(pull["number"]), text, author=_author(server, pull))
