"""A token of a GitHub App: made for one repository and few permissions, and taken back at the end.

An App has a private key. With it a JSON Web Token (RFC 7519) is signed, which is good for minutes and says
who asks; GitHub gives a token of the App's installation for it, which is good for an hour at most.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pytest_cgins.core.errors import GitHubError, InfrastructureError
from pytest_cgins.pull_request.transport import Transport

PERMISSIONS = {"contents": "write", "pull_requests": "write"}
WELCOME = {"members": "read", "issues": "write"}
"""Asked for where the installation has them: to ask teams for a review, and to make a label that is not there
yet."""
GOOD_FOR_S = 540
"""GitHub takes at most ten minutes, by its own clock."""
CLOCK_S = 60
"""That this machine's clock may be ahead."""


@contextmanager
def installed(api: str, app: str, key: str, full_name: str) -> Iterator[str]:
    """A token of an App's installation in a repository, until the end of the block; `app` is its ID, or its client ID.

    Raises:
        GitHubError: the private key is none, or the App is not installed there with these permissions.
        InfrastructureError: the package for signing is missing.
    """
    transport = Transport(api, _signed(app, key))
    try:
        installation: dict[str, Any] = transport.request("GET", f"/repos/{full_name}/installation")
        permissions = PERMISSIONS | _granted(installation.get("permissions"))
        asked = {"repositories": [full_name.partition("/")[2]], "permissions": permissions}
        made = transport.request(
            "POST", f"/app/installations/{int(installation['id'])}/access_tokens", content=asked
        )
    except GitHubError as error:
        raise GitHubError(error.what, remedy=_remedy(error.status), status=error.status) from None
    finally:
        transport.close()
    token = str(made["token"])
    try:
        yield token
    finally:
        _revoke(api, token)


def _granted(permissions: object) -> dict[str, str]:
    """Those of `WELCOME` that an installation has: one that it lacks would spoil the whole request."""
    has = permissions if isinstance(permissions, dict) else {}
    return {name: level for name, level in WELCOME.items() if has.get(name) in ("write", level)}


def _signed(app: str, key: str) -> str:
    try:
        import jwt
    except ImportError:
        raise _missing("pyjwt") from None
    now = int(time.time())
    claims = {"iat": now - CLOCK_S, "exp": now + GOOD_FOR_S, "iss": app}
    try:
        return jwt.encode(claims, key, algorithm="RS256")
    except NotImplementedError:
        raise _missing("cryptography, with which pyjwt signs") from None
    # An AttributeError where it is a public key, which the library reads as well.
    except (ValueError, TypeError, AttributeError, jwt.PyJWTError):
        # Not the library's words, which may have some of the key.
        raise GitHubError(
            "the App's private key cannot be read", remedy="give the whole PEM file that GitHub made"
        ) from None


def _missing(package: str) -> InfrastructureError:
    return InfrastructureError(
        f"an App's token needs the package {package}", remedy="pip install pytest-cgins[app]"
    )


def _revoke(api: str, token: str) -> None:
    """Without it the token would end by itself, within the hour."""
    transport = Transport(api, token)
    with suppress(GitHubError):
        transport.request("DELETE", "/installation/token", once=True)
    transport.close()


def _remedy(status: int) -> str:
    if status == 401:
        return "look at the App's ID and key, and at this machine's clock"
    if status in (403, 404, 422):
        return "install the App in the repository, with contents: write and pull requests: write"
    return "run the command again later"
