"""The environment that git runs in: without the system's and the user's settings, hooks and traces.

Settings that are given here, a token among them, are on no command line and in no file.
"""

from __future__ import annotations

import os
import subprocess
from urllib.parse import unquote

from pytest_cgins.core.secrets import without_secrets

KEPT_VARIABLES = (
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSH_AUTH_SOCK"
)  # fmt: skip
"""Variables that git and ssh need to reach a server; all others that begin with GIT_ are dropped."""
PROXIES = tuple(case(f"{one}_PROXY") for one in ("HTTP", "HTTPS", "ALL") for case in (str.upper, str.lower))
"""Variables that git needs to get out, whatever password they have in them."""
SETTINGS = {"http.followRedirects": "false", "gc.auto": "0", "maintenance.auto": "false"}
"""All settings that git has besides its own defaults."""


def bare() -> dict[str, str]:
    """Variables for git, without any secret but those of proxies."""
    environment = {
        name: value for name, value in without_secrets(os.environ).items() if not name.startswith("GIT_")
    }
    environment |= {name: os.environ[name] for name in (*KEPT_VARIABLES, *PROXIES) if name in os.environ}
    environment |= {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",  # else SSH_ASKPASS is asked for a password
        "GIT_LITERAL_PATHSPECS": "1",
        "LC_ALL": "C",
    }
    if "GIT_SSH" not in environment:
        environment.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    configure(environment, [*SETTINGS.items(), *(("safe.directory", one) for one in _trusted())])
    return environment


def passwords() -> tuple[str, ...]:
    """What of the proxies in the environment no message may have, longest first."""
    found = set()
    for value in filter(None, map(os.environ.get, PROXIES)):
        user = value.rpartition("@")[0]
        password = user.rpartition("://")[2].partition(":")[2]
        found |= {user, password, unquote(password)} if password else set()
    return tuple(sorted(found, key=len, reverse=True))


def _trusted() -> list[str]:
    """Folders of others that the user's own settings trust: the only thing that is taken from there."""
    try:
        done = subprocess.run(
            ["git", "config", "--global", "-z", "--get-all", "safe.directory"],
            capture_output=True,
            check=False,
            timeout=10.0,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [one for one in done.stdout.decode("utf-8", "replace").split("\0") if one]


def configure(environment: dict[str, str], settings: list[tuple[str, str]]) -> None:
    """Add settings that go before those in files; a key may be there several times."""
    count = int(environment.get("GIT_CONFIG_COUNT", "0"))
    for number, (key, value) in enumerate(settings, start=count):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    environment["GIT_CONFIG_COUNT"] = str(count + len(settings))
