"""git in the folders of tests, as somebody with a name."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytest_cgins.building.revision.merge_base import TARGETS
from pytest_cgins.report.git_branch import BRANCH_VARIABLES

SETTINGS = (
    "user.name=T", "user.email=t@localhost", "commit.gpgsign=false", "init.defaultBranch=main",
    "protocol.file.allow=always",
)  # fmt: skip
GITHUB = ("GITHUB_REF_NAME", "GITHUB_REF_TYPE", "GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH")
NO_CI = dict.fromkeys(
    ("CI", "CI_DEFAULT_BRANCH", "BRANCH_IS_PRIMARY", *TARGETS, *BRANCH_VARIABLES, *GITHUB), ""
)
"""Variables of a run that no pipeline has started."""


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
