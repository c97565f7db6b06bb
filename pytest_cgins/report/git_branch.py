"""Which branch a run is on, and whether that is the repository's default one: CI's word first, then git's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.revision.merge_base import BRANCHES, TARGETS
from pytest_cgins.core import git
from pytest_cgins.core.errors import RevisionError
from pytest_cgins.report.history import Head

BRANCH_VARIABLES = ("CI_COMMIT_BRANCH", "BRANCH_NAME", "BITBUCKET_BRANCH")
"""Variables in which GitLab, Jenkins and Bitbucket name the branch of a run."""

_EVENT_LIMIT_NBYTES = 2**25


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run is, as far as that is known."""

    head: Head
    refusal: str
    """Why its times do not belong into the history of the default branch; "" if they do."""


def place(folder: Path, environment: Mapping[str, str] = os.environ) -> Place:
    """Ask CI's variables and git about a folder of the working tree."""
    try:
        commit = git.read(folder, "rev-parse", "HEAD").strip()
        dirty = bool(git.read(folder, "status", "--porcelain", "--untracked-files=no").strip())
    except RevisionError as error:
        return Place(head=Head(commit="", dirty=False, branch=""), refusal=error.what)
    branch = _branch(folder, environment)
    head = Head(commit=commit, dirty=dirty, branch=branch)
    return Place(head=head, refusal=_refusal(folder, branch, environment))


def _branch(folder: Path, environment: Mapping[str, str]) -> str:
    if environment.get("GITHUB_REF_NAME"):
        return environment["GITHUB_REF_NAME"] if environment.get("GITHUB_REF_TYPE") != "tag" else ""
    named = next((environment[name] for name in BRANCH_VARIABLES if environment.get(name)), "")
    return named or git.read(folder, "symbolic-ref", "--quiet", "--short", "HEAD", check=False).strip()


def _refusal(folder: Path, branch: str, environment: Mapping[str, str]) -> str:
    event = environment.get("GITHUB_EVENT_NAME", "")
    if event.startswith("pull_request") or event == "merge_group":
        return f"this is a run of GitHub's event {event}"
    if target := next((environment[name] for name in TARGETS if environment.get(name)), ""):
        return f"this is a pull request into {target}"
    if not branch:
        return "HEAD is on no branch"
    if environment.get("BRANCH_IS_PRIMARY") == "true":  # Jenkins
        return ""
    default = _default(folder, environment)
    if not default:
        return (
            f"git does not know whether {branch} is the default branch; run git remote set-head origin --auto"
        )
    return "" if branch == default else f"HEAD is on {branch}, and the default branch is {default}"


def _default(folder: Path, environment: Mapping[str, str]) -> str:
    """Name of the default branch; "" if nobody knows."""
    if environment.get("CI_DEFAULT_BRANCH"):  # GitLab
        return environment["CI_DEFAULT_BRANCH"]
    if told := _of_event(environment.get("GITHUB_EVENT_PATH", "")):
        return told
    remote = git.read(folder, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD", check=False)
    if remote.strip():
        return remote.strip().removeprefix("origin/")
    names = dict.fromkeys(name.removeprefix("origin/") for name in BRANCHES if name != "origin/HEAD")
    listed = git.read(
        folder, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes/origin", check=False
    )
    known = {one.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/") for one in listed.split()}
    # A repository in which nothing was committed to its branch yet has no refs.
    return next((name for name in names if name in known), "")


def _of_event(path: str) -> str:
    """The default branch by the document that GitHub gives each run."""
    try:
        if not path or Path(path).stat().st_size > _EVENT_LIMIT_NBYTES:
            return ""
        name = json.loads(Path(path).read_bytes())["repository"]["default_branch"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return ""
    return name if isinstance(name, str) else ""
