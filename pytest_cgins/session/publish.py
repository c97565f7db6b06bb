"""`--cgins-pr`: proposals of a run become pull requests, each by a process of its own that alone uses the token."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pytest_cgins.errors import GitHubError
from pytest_cgins.github import remote, rest
from pytest_cgins.github.git import Git

if TYPE_CHECKING:
    from pytest_cgins.regenerate.journal import RunRecord
    from pytest_cgins.regenerate.run import Ran

Choice = Literal["auto", "draft", "off"]
LIMIT_S = 300.0
"""A process that is not done by then is ended."""
HOSTS = ("github.com",)
"""Servers of GitHub that need no variable to be known."""
_BOOT = "import sys; from pytest_cgins.cli import main; sys.exit(main(sys.argv[1:]))"


def of_run(record: RunRecord, ran: Ran, config: Path) -> Iterator[str]:
    """Do with the proposals of a run what it was begun with, and say what came of it, a line each.

    What has been opened by an earlier part of the run is left as it is.

    Args:
        record: what the run was asked for.
        ran: what it came to.
        config: the project's `cgins.yaml`.
    """
    proposals = [ran.journal / result.proposal for result in ran.results if result.proposal]
    yield from published(proposals, config, record.pull_requests)


def published(
    proposals: Sequence[Path], config: Path, choice: Choice, environment: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Open pull requests, and say what came of it, a line each.

    Args:
        proposals: folders.
        config: the project's `cgins.yaml`.
        choice: `auto` opens drafts where there is a token and a remote on GitHub; `draft` says why it cannot.
        environment: variables of this process.
    """
    if choice == "off" or not proposals:
        return
    missing = obstacle(config.parent, environment)
    if missing:
        yield f"no pull request: {missing}" + (" (--cgins-pr=draft was given)" if choice == "draft" else "")
        return
    for folder in proposals:
        yield _opened(folder, config, environment)


def obstacle(folder: Path, environment: Mapping[str, str]) -> str:
    """Why no pull request can be opened from a folder; "" if one can."""
    try:
        rest.token(environment)
        place = remote.parse(Git(folder).remote_url("origin"))
    except GitHubError as error:
        return error.what
    own = urlsplit(environment.get("GITHUB_SERVER_URL", "")).hostname
    if place.host not in (*HOSTS, own):
        return f"the remote origin is on {place.host}, and GITHUB_SERVER_URL does not name that server"
    return ""


def _opened(folder: Path, config: Path, environment: Mapping[str, str]) -> str:
    words = ["pull-request", "open", "--proposal", str(folder), "--config", str(config), "--draft"]
    # The package's own folder is not needed on the path: -I leaves out the project's, whose modules are not ours.
    command = [sys.executable, "-I", "-c", _BOOT, *words]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no pull request for {folder.name}: {error}"
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    told = " ".join(line.strip() for line in lines) or f"exit status {done.returncode}"
    return told if done.returncode == 0 else f"no pull request for {folder.name}: {told}"
