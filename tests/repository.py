"""git in the folders of tests, as somebody with a name."""

from __future__ import annotations

import subprocess
from pathlib import Path

SETTINGS = (
    "user.name=T", "user.email=t@localhost", "commit.gpgsign=false", "init.defaultBranch=main",
    "protocol.file.allow=always",
)  # fmt: skip


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    done = subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    """Commit all files, in a repository that is made if there is none; gives the commit."""
    if subprocess.run(["git", "rev-parse"], cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode:
        git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "as it is")
    return git(folder, "rev-parse", "HEAD")
