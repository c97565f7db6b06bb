"""The git command: the one place that runs it, in one of two environments.

`read` looks at a person's working tree and keeps that person's settings, such as safe.directory and ignored
files. `isolated` heeds no settings of the system and the user, no hooks, prompts or traces: for repositories
of our own, and wherever a token is used. Settings that are given to it, a token among them, are on no command
line and in no file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from pytest_cgins.core.errors import GitError, RevisionError
from pytest_cgins.core.secrets import without_secrets

LIMIT_S = 120.0
"""Longest that a command may take, unless another limit is given."""
KEPT_VARIABLES = (
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSH_AUTH_SOCK"
)  # fmt: skip
"""Variables that git and ssh need to reach a server; all others that begin with GIT_ are dropped."""
PROXIES = tuple(case(f"{one}_PROXY") for one in ("HTTP", "HTTPS", "ALL") for case in (str.upper, str.lower))
"""Variables that git needs to get out, whatever password they have in them."""
_AS_MADE = {
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": f"{os.devnull}/none", "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C",
}  # fmt: skip
"""Variables under which git shows commits and files as they were made, whatever replaces them in a clone."""
_ISOLATED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ASKPASS": "",  # else SSH_ASKPASS is asked for a password
    "GIT_LITERAL_PATHSPECS": "1",
}
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.autocrlf": "false",
    # Without them git reads files in the user's folder of settings.
    "core.excludesFile": os.devnull,
    "core.attributesFile": os.devnull,
    "http.followRedirects": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
"""All settings of `isolated` besides git's own defaults."""


def run(
    folder: Path | str,
    *words: str,
    environment: Mapping[str, str],
    given: bytes = b"",
    output: BinaryIO | None = None,
    limit_s: float = LIMIT_S,
) -> bytes:
    """What a git command prints, unless that goes to a file; it has these variables alone.

    Raises:
        GitError: it failed or took too long, or there is no git.
    """
    try:
        done = subprocess.run(
            ["git", "-C", folder, *words],
            input=given, stdout=output or subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, timeout=limit_s, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise GitError("git is not installed", remedy="install git") from None
    except subprocess.TimeoutExpired:
        raise GitError(
            f"git {words[0]} in {folder} took more than {limit_s:g} s",
            remedy="run it by hand; if it needs a server, check that the server can be reached",
        ) from None
    except OSError as error:
        raise GitError(f"git {words[0]}: {error}", remedy="run it by hand") from error
    if done.returncode:
        first = os.fsdecode(done.stderr).strip().partition("\n")[0].removeprefix("fatal: ")
        raise GitError(
            f"git {words[0]} in {folder}: {first or f'exit status {done.returncode}'}",
            remedy="run it by hand",
            output=(done.stdout or b"") + done.stderr,
        )
    return done.stdout or b""


def read(
    folder: Path, *words: str, check: bool = True, given: bytes = b"", output: BinaryIO | None = None
) -> str:
    """What git says of a person's working tree, or "" if it goes to a file, or fails while `check` is off.

    Raises:
        RevisionError: it failed, or there is no git.
    """
    # Within a hook git names the index and the folder of the repository that it works for.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG_")
    }
    environment |= _AS_MADE
    configure(environment, [("core.fsmonitor", "false"), ("core.hooksPath", os.devnull)])
    try:
        return os.fsdecode(run(folder, *words, environment=environment, given=given, output=output))
    except GitError as error:
        if error.output is not None and not check:
            return ""
        if b"not a git repository" in (error.output or b"").partition(b"\n")[0]:
            raise RevisionError(
                f"{folder} is in no git repository",
                remedy="git init and commit once, or name none as the baseline",
            ) from None
        raise RevisionError(error.what, remedy=f"{error.remedy}, or name none as the baseline") from None


def files(folder: Path) -> list[str]:
    """What git tracks below a folder, or would track: paths from there of all files that are not ignored.

    Raises:
        RevisionError: as `read`.
    """
    return read(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")[:-1]


def isolated(settings: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Variables for a git that heeds no settings but these, without any secret but those of proxies."""
    environment = {
        name: value for name, value in without_secrets(os.environ).items() if not name.startswith("GIT_")
    }
    environment |= {name: os.environ[name] for name in (*KEPT_VARIABLES, *PROXIES) if name in os.environ}
    environment |= {**_AS_MADE, **_ISOLATED}
    if "GIT_SSH" not in environment:
        environment.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    configure(environment, [*_SETTINGS.items(), *(("safe.directory", one) for one in _trusted()), *settings])
    return environment


def configure(environment: dict[str, str], settings: Iterable[tuple[str, str]]) -> None:
    """Add settings that go before those in files; a key may be there several times."""
    count = environment.get("GIT_CONFIG_COUNT", "")
    number = int(count) if count.isdecimal() else 0
    for key, value in settings:
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
        number += 1
    environment["GIT_CONFIG_COUNT"] = str(number)


def _trusted() -> list[str]:
    """Folders of others that the user's own settings trust: the only thing that is taken from there."""
    words = ("config", "--global", "-z", "--get-all", "safe.directory")
    try:
        told = run(".", *words, environment=os.environ, limit_s=10.0)
    except GitError:
        return []
    return [one for one in told.decode("utf-8", "replace").split("\0") if one]
