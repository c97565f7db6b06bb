"""The environment that git runs in: without the system's and the user's settings, hooks and traces.

Settings that are given here, a token among them, are on no command line and in no file.
"""

from __future__ import annotations

import os
import subprocess

from pytest_cgins.secrets import without_secrets

KEPT_VARIABLES = (
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSH_AUTH_SOCK"
)  # fmt: skip
"""Variables that git and ssh need to reach a server; all others that begin with GIT_ are dropped."""
SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "push.gpgSign": "false",
    "push.followTags": "false",
    "submodule.recurse": "false",
    "http.followRedirects": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
"""Settings that go before those of the repository."""


def bare() -> dict[str, str]:
    """Variables for git, without any secret."""
    environment = {
        name: value for name, value in without_secrets(os.environ).items() if not name.startswith("GIT_")
    }
    environment |= {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment |= {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "LC_ALL": "C",
    }
    environment.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    configure(environment, [*SETTINGS.items(), *(("safe.directory", one) for one in _trusted())])
    return environment


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
