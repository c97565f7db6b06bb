"""The token that may write: read from the environment and from nowhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_cgins.core.errors import GitHubError

TOKEN_VARIABLES = ("GITHUB_TOKEN", "GH_TOKEN")


def token(environment: Mapping[str, str], variable: str = "") -> str:
    """The token, from one variable of the environment, by default the first of `TOKEN_VARIABLES`.

    Raises:
        GitHubError: none is set, or it is no token.
    """
    names = (variable,) if variable else TOKEN_VARIABLES
    value = next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")
    if not value:
        raise GitHubError(
            f"there is no token: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} not set",
            remedy="set it to a token with the permissions contents: write and pull-requests: write",
        )
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise GitHubError("the token has blanks or characters that no token has", remedy="copy it again")
    return value


def workflow_permission(message: str) -> str:
    """What a token lacks for a workflow's file, by GitHub's refusal; "" if that is about something else."""
    if not re.search(
        r"refusing to allow .*workflow|without [`'\"]?workflows?[`'\"]? (permission|scope)", message
    ):
        return ""
    return (
        "the base branch has changed a workflow's file since the bot's branch was made, or on no other "
        "branch: the token needs workflows: write (an App's or fine-grained one) or the scope workflow (a "
        "classic one), which a workflow's own never has; or delete the bot's branch, and run the command "
        "again"
    )
