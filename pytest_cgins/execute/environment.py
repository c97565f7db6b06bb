"""The environment of workers: that of pytest without what looks like a secret, and who may look at a process.

Code under test never gets a variable whose name fits one of `SECRET_NAMES`, nor one whose value is a URL with a
password in it. Names alone decide, so a secret with a harmless name gets through: start pytest without it.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase

SECRET_NAMES = (
    "*TOKEN", "*_TOKEN_*", "*API_KEY*", "*APIKEY*", "*ACCESS_KEY*", "*PRIVATE_KEY*", "*SECRET*", "*PASSWORD*",
    "*PASSWD*", "*PASSPHRASE*", "*CREDENTIAL*", "*_PAT", "*_DSN", "*CONNECTION_STRING*", "*_AUTH", "*_WEBHOOK*",
    "ACTIONS_*", "ANTHROPIC_*", "AWS_*", "AZURE_*", "DATABASE_URL", "DOCKER_AUTH*", "GEMINI_*", "GOOGLE_*",
    "KUBECONFIG", "NETRC", "OPENAI_*", "PGPASS*", "SSH_*", "TWINE_*", "VAULT_*",
)  # fmt: skip
"""Names of variables that no worker gets, as shell patterns; upper and lower case are the same."""

TELLING_NAMES = ("CI", "CONTINUOUS_INTEGRATION", "GITHUB_*", "GITLAB_*", "PYTEST_*", "RUNNER_*")
"""Names of variables by which a kernel could tell that it is being tested; no worker gets them either."""

WORKER_MARK = "CGINS_WORKER"
"""Variable by which the processes of one worker are found again; its value is random, and no secret."""

_URL_WITH_PASSWORD = re.compile(r"://[^/\s@:]*:[^/\s@]+@")
_PR_SET_DUMPABLE = 4


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable is kept from workers."""
    upper = name.upper()
    return any(fnmatchcase(upper, pattern) for pattern in SECRET_NAMES) or bool(
        _URL_WITH_PASSWORD.search(value)
    )


def worker_environment(mark: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a new worker: this process's without secrets and what tells of a test, `extra`, and a mark."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not is_secret(name, value) and not any(fnmatchcase(name, pattern) for pattern in TELLING_NAMES)
    }
    return {**inherited, **(extra or {}), WORKER_MARK: mark}


def has_secrets() -> bool:
    """Whether this process's environment has something to hide."""
    return any(is_secret(name, value) for name, value in os.environ.items())


def shield() -> None:
    """Keep other processes of the same user from reading this one's memory, descriptors and environment.

    It ends core dumps of this process, and debuggers of the same user cannot attach; root still can. Nothing
    happens where the system has no such switch.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
