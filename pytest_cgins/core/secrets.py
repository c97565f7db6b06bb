"""Finds variables of the environment that look like secrets.

Names alone decide, and addresses with a password in them: a secret with a harmless name gets through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

SECRET_NAMES = (
    "*TOKEN", "*TOKENS", "*_TOKEN_FILE", "*_TOKEN_PATH", "*_TOKEN_V*", "*_TOKEN_[0-9]*", "*API_KEY*", "*APIKEY*",
    "*ACCESS_KEY*", "*PRIVATE_KEY*", "*_KEY", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*_PASS", "*_PWD",
    "*PASSPHRASE*", "*CREDENTIAL*", "*_JWT*", "*_PAT", "*_DSN", "*CONNECTION_STRING*", "*_AUTH", "*_WEBHOOK*",
    "ACTIONS_*", "ANTHROPIC_*", "AWS_*", "AZURE_*", "DATABASE_URL", "DOCKER_AUTH*", "GEMINI_*", "GOOGLE_*", "JWT*",
    "KUBECONFIG", "NETRC", "OPENAI_*", "PGPASS*", "SSH_*", "TWINE_*", "VAULT_*",
)  # fmt: skip
"""Names of variables with secrets, as shell patterns; upper and lower case are the same."""

HARMLESS_NAMES = (
    "PAD_TOKEN", "EOS_TOKEN", "BOS_TOKEN", "MAX_TOKEN*", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY",
)  # fmt: skip
"""Names that fit one of `SECRET_NAMES` and are no secret: a tokenizer's words, and where a shell came from."""

_URL_WITH_PASSWORD = re.compile(r"://[^/\s@:]*:[^/\s@]+@")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable is to be kept from code under test and from compilers."""
    if _URL_WITH_PASSWORD.search(value):
        return True
    return _fits(name.upper(), SECRET_NAMES) and not _fits(name.upper(), HARMLESS_NAMES)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are no secrets."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
