"""What may be wrong with words that say who is asked: in cgins.yaml, and on the command line.

Each check gives what is wrong and the remedy, or None. Whatever may be an API key by mistake is in neither.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pytest_cgins.core.secrets import is_secret

EXAMPLE_URL = "http://localhost:8000/v1"
VARIABLE_REMEDY = "put the key into an environment variable, and name that: api_key_env: MY_API_KEY"
MOST_MODEL_CHARACTERS = 200

_URL_REMEDY = f"write one such as {EXAMPLE_URL}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY_PREFIX = re.compile(
    r"(?:(?:sk|pk|rk|gsk|hf|gh[pousr]|xai|r8|nvapi|glpat)[-_]|AIza|github_pat_|eyJ).{16}"
)
_RANDOM = re.compile(r"(?=[A-Za-z0-9]{20})[A-Za-z]*[0-9]+[A-Za-z]")

Wrong = tuple[str, str] | None
"""What is wrong and the remedy; None if nothing is."""


def looks_like_key(text: str) -> bool:
    """Whether a text is rather an API key than the name of a variable or of a model."""
    parts = re.split(r"[^A-Za-z0-9]+", text)
    return bool(_KEY_PREFIX.match(text)) or any(_RANDOM.match(part) for part in parts)


def wrong_with_url(text: str) -> Wrong:
    """What is wrong with the address of a server, and the remedy."""
    try:
        parts = urlsplit(text)
        host, secret, port = parts.hostname, "@" in parts.netloc, parts.port
    except ValueError:
        return "is no address of a server", _URL_REMEDY
    if secret:
        return "has a name or password in it", VARIABLE_REMEDY
    if "?" in text or "#" in text:
        return "has a ? or # in it, after which no path can follow", _URL_REMEDY
    if parts.scheme not in ("http", "https") or not host or port == 0 or re.search(r"[\s\\]", text):
        return "is no address of a server", _URL_REMEDY
    return None


def wrong_with_model(name: str) -> Wrong:
    """What is wrong with the name of a model, and the remedy."""
    if _KEY_PREFIX.match(name):
        return "looks like an API key", "write the name of a model, as its provider has it"
    if len(name) > MOST_MODEL_CHARACTERS or name != name.strip() or not name.isprintable() or not name:
        return (
            "is no name of a model",
            f"write at most {MOST_MODEL_CHARACTERS} characters that can be printed",
        )
    return None


def wrong_with_variable(text: str) -> Wrong:
    """What is wrong with the name of a variable that holds a key."""
    if looks_like_key(text):
        return "looks like a key itself, and is not repeated here", VARIABLE_REMEDY
    if not _VARIABLE.fullmatch(text):
        return "is no name of a variable", "write a name such as MY_API_KEY, never the key"
    if not is_secret(text):
        # Those that look like secrets are kept from kernels and compilers.
        return (
            f"is {text}, which nobody would take for a secret",
            "give the variable a name that ends in _API_KEY",
        )
    return None
