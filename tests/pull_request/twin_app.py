"""A GitHub App of the twin: what it may ask with a JSON web token, and the tokens that its installation gets."""

from __future__ import annotations

import secrets
import time
from datetime import datetime, timezone
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.pull_request.oracle import filled
from tests.pull_request.twin_state import Call, Minted, Refusal, State, not_found

LOGIN = "cgins-app[bot]"
LONGEST_S = 600
"""Furthest that a web token's end may be ahead."""
LIFE_S = 3600
"""Of an installation's token."""
_LEVELS = ("", "read", "write")


def make_key() -> tuple[str, str]:
    """A private key and its public half, PEM, for tests."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


def check_web_token(api: State, token: str) -> None:
    """Whether a token is one that the app signed.

    Raises:
        Refusal: it is not, or it has ended, or ends too late.
    """
    if not api.app_key:
        raise Refusal(401, "A JSON web token could not be decoded")
    options = {"require": ["exp", "iat", "iss"], "verify_iss": False, "verify_exp": False}
    try:
        claims = jwt.decode(token, api.app_key, algorithms=["RS256"], options=options)  # type: ignore[arg-type]
    except jwt.ImmatureSignatureError:
        raise Refusal(401, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued") from None  # fmt: skip
    except jwt.InvalidTokenError:
        raise Refusal(401, "A JSON web token could not be decoded") from None
    end = claims["exp"]
    if not isinstance(end, int) or end <= time.time():
        raise Refusal(401, "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")  # fmt: skip
    if end > time.time() + LONGEST_S:
        raise Refusal(401, "'Expiration time' claim ('exp') is too far in the future")
    if not str(claims["iss"]).isdecimal():
        raise Refusal(401, "'Issuer' claim ('iss') must be an Integer")
    if str(claims["iss"]) != str(api.app_id):
        raise Refusal(404, "Integration not found")


def get_installation(api: State, call: Call) -> tuple[int, Any]:
    if api.installation is None:
        raise not_found()
    known = {
        "id": api.installation,
        "app_id": api.app_id,
        "app_slug": LOGIN.removesuffix("[bot]"),
        "account": api.user(api.owner),
        "target_type": "Organization",
        "repository_selection": "selected",
        "permissions": api.app_permissions,
        "access_tokens_url": f"{api.url}/api/v3/app/installations/{api.installation}/access_tokens",
    }
    return 200, filled("installation", known, url=api.url)


def mint(api: State, call: Call) -> tuple[int, Any]:
    body = call.body or {}
    if call.path["installation_id"] != str(api.installation):
        raise not_found()
    if any(one != api.name for one in body.get("repositories", [])):
        raise Refusal(
            422,
            "There is at least one repository that does not exist or is not accessible to the parent installation.",
        )
    asked = body.get("permissions", api.app_permissions)
    for name, level in asked.items():
        if _LEVELS.index(level) > _LEVELS.index(api.app_permissions.get(name, "")):
            raise Refusal(422, "The permissions requested are not granted to this installation.")
    token = f"ghs_{secrets.token_hex(18)}"
    end = time.time() + LIFE_S
    # GitHub adds it to whatever is asked for.
    minted = api.minted[token] = Minted({"metadata": "read", **asked}, end)
    known = {
        "token": token,
        "expires_at": datetime.fromtimestamp(end, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "permissions": minted.permissions,
        "repository_selection": "selected",
        "repositories": [api.repository("repository")],
    }
    return 201, known


def revoke(api: State, call: Call) -> tuple[int, Any]:
    if api.minted.pop(call.token, None) is None:
        raise Refusal(403, "Resource not accessible by integration")
    return 204, None


def check_permission(api: State, token: str, method: str, template: str) -> None:
    """Whether an installation's token may do it; others are not limited.

    Raises:
        Refusal: it may not.
    """
    names, wanted = _needed(template), "read" if method == "GET" else "write"
    if names and not any(allows(api, token, one, wanted) for one in names):
        raise Refusal(403, "Resource not accessible by integration")


def allows(api: State, token: str, name: str, level: str) -> bool:
    """Whether an installation's token has a permission; others are not limited."""
    minted = api.minted.get(token)
    return minted is None or _LEVELS.index(minted.permissions.get(name, "")) >= _LEVELS.index(level)


def _needed(template: str) -> tuple[str, ...]:
    """Permissions of which one is needed."""
    noun = template.removeprefix("/repos/{owner}/{repo}").split("/")[1:2]
    if noun in (["git"], ["compare"]):
        return ("contents",)
    if noun == ["pulls"]:
        return ("pull_requests",)
    return ("pull_requests", "issues") if noun == ["issues"] else ()


ROUTES = {
    ("GET", "/repos/{owner}/{repo}/installation"): get_installation,
    ("POST", "/app/installations/{installation_id}/access_tokens"): mint,
    ("DELETE", "/installation/token"): revoke,
}
BY_WEB_TOKEN = tuple(list(ROUTES)[:2])
