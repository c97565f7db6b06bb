"""The token that may write: read from the environment and from nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_cgins.errors import GitHubError

TOKEN_VARIABLES = ("GITHUB_TOKEN", "GH_TOKEN")


def token(environment: Mapping[str, str], variable: str = "") -> str:
    """The token, from the environment alone.

    Args:
        environment: the variables.
        variable: name of the one that has it; "" for the first of `TOKEN_VARIABLES`.

    Raises:
        GitHubError: none is set, or it is no token.
    """
    names = (variable,) if variable else TOKEN_VARIABLES
    found = next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")
    if not found:
        raise GitHubError(
            f"there is no token: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} not set",
            remedy="set it to a token with the permissions contents: write and pull-requests: write",
        )
    if not (found.isascii() and found.isprintable() and " " not in found):
        raise GitHubError("the token has blanks or characters that no token has", remedy="copy it again")
    return found
