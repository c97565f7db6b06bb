"""A pull request that is stale or moot: told by a label and one comment, which is rewritten and never doubled."""

from __future__ import annotations

from typing import Any

from pytest_cgins.errors import GitHubError
from pytest_cgins.github import comment, refs
from pytest_cgins.github.server import Server

STALE = "cgins: stale"
"""The label."""


def mark_stale(server: Server, pull: dict[str, Any], marker: str, why: str) -> None:
    """Label a pull request, and say in a comment why; done twice it changes nothing.

    Args:
        server: where.
        pull: as GitHub shows it.
        marker: hidden line of the comment.
        why: markdown.
    """
    number = int(pull["number"])
    if not _is_marked(pull):
        server.rest.add_labels(number, [STALE])
    _say(server, pull, f"{marker}\n**Stale.** {why}\n")


def unmark_stale(server: Server, pull: dict[str, Any], marker: str) -> None:
    """Take label and reproach back, where they are."""
    if not _is_marked(pull):
        return
    _say(server, pull, f"{marker}\nIt was stale, and has another commit now.\n")
    try:
        server.rest.remove_label(int(pull["number"]), STALE)
    except GitHubError as error:
        if error.status != 404:
            raise


def close(server: Server, pull: dict[str, Any], marker: str, why: str, *, tip: str | None) -> None:
    """Say why, close, and delete the branch; each step may have been done before.

    Args:
        server: where.
        pull: as GitHub shows it.
        marker: hidden line of the comment.
        why: markdown.
        tip: the bot's own commit on the branch; None leaves the branch.
    """
    if pull["state"] == "open":
        _say(server, pull, f"{marker}\n**Closed.** {why}\n")
        server.rest.update_pull(int(pull["number"]), state="closed")
    if tip is not None:
        refs.delete(server, str(pull["head"]["ref"]), tip)


def _is_marked(pull: dict[str, Any]) -> bool:
    return any(one["name"] == STALE for one in pull["labels"])


def _say(server: Server, pull: dict[str, Any], text: str) -> None:
    author = server.login() or str((pull["user"] or {}).get("login", ""))
    comment.post(server.rest, int(pull["number"]), text, author=author)
