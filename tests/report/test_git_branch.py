"""Where a run is, by CI's variables and by git."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cgins.report.git_branch import place
from tests.repository import commit, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("1")
    commit(tmp_path)
    return tmp_path


def test_the_default_branch_is_found(repository: Path) -> None:
    """Commit, branch, and no reason against it."""
    found = place(repository, {})
    assert found.refusal == ""
    assert (found.head.branch, found.head.dirty) == ("main", False)
    assert found.head.commit == git(repository, "rev-parse", "HEAD")


def test_edits_are_noted(repository: Path) -> None:
    """Of tracked files; what lies about is none."""
    (repository / "new").touch()
    assert not place(repository, {}).head.dirty
    (repository / "file").write_text("2")
    assert place(repository, {}).head.dirty


def test_another_branch_is_refused(repository: Path) -> None:
    """With both names."""
    git(repository, "switch", "-q", "-c", "faster")
    found = place(repository, {})
    assert found.head.branch == "faster"
    assert found.refusal == "HEAD is on faster, and the default branch is main"


def test_a_detached_head_is_refused(repository: Path) -> None:
    """Unless CI says which branch it checked out so."""
    git(repository, "checkout", "-q", "--detach")
    assert place(repository, {}).refusal == "HEAD is on no branch"
    assert place(repository, {"CI_COMMIT_BRANCH": "main"}).refusal == ""


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    """With what git says."""
    found = place(tmp_path, {})
    assert found.head.commit == ""
    assert "is in no git repository" in found.refusal


def test_a_repository_that_does_not_tell_is_refused(repository: Path) -> None:
    """A default branch by another name has to be known from somewhere."""
    git(repository, "branch", "-m", "trunk")
    assert place(repository, {}).refusal == (
        "git does not know whether trunk is the default branch; run git remote set-head origin --auto"
    )
    git(repository, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert place(repository, {}).refusal == ""


@pytest.mark.parametrize(
    ("variables", "branch", "refusal"),
    [
        ({"GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch", "GITHUB_EVENT_NAME": "push"}, "main", ""),
        ({"GITHUB_REF_NAME": "v1", "GITHUB_REF_TYPE": "tag"}, "", "HEAD is on no branch"),
        (
            {"GITHUB_REF_NAME": "7/merge", "GITHUB_EVENT_NAME": "pull_request"},
            "7/merge",
            "this is a run of GitHub's event pull_request",
        ),
        (
            {"GITHUB_REF_NAME": "main", "GITHUB_EVENT_NAME": "pull_request_target"},
            "main",
            "this is a run of GitHub's event pull_request_target",
        ),
        (
            {"GITHUB_REF_NAME": "gh-readonly-queue/main/pr-7", "GITHUB_EVENT_NAME": "merge_group"},
            "gh-readonly-queue/main/pr-7",
            "this is a run of GitHub's event merge_group",
        ),
        ({"CI_COMMIT_BRANCH": "trunk", "CI_DEFAULT_BRANCH": "trunk"}, "trunk", ""),
        (
            {"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "trunk"},
            "main",
            "HEAD is on main, and the default branch is trunk",
        ),
        ({"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}, "main", "this is a pull request into main"),
        ({"BRANCH_NAME": "release", "BRANCH_IS_PRIMARY": "true"}, "release", ""),
        ({"BITBUCKET_BRANCH": "x"}, "x", "HEAD is on x, and the default branch is main"),
    ],
)
def test_ci_s_word_comes_first(
    repository: Path, variables: dict[str, str], branch: str, refusal: str
) -> None:
    """GitHub, GitLab, Jenkins and Bitbucket."""
    found = place(repository, variables)
    assert (found.head.branch, found.refusal) == (branch, refusal)


@pytest.mark.parametrize(
    ("event", "refusal"),
    [
        (
            json.dumps({"repository": {"default_branch": "trunk"}}),
            "HEAD is on main, and the default branch is trunk",
        ),
        (json.dumps({"repository": {"default_branch": 3}}), ""),
        (json.dumps({"repository": None}), ""),
        ("[" * 100_000, ""),
        ("{", ""),
    ],
)
def test_github_s_event_names_the_default_branch(repository: Path, event: str, refusal: str) -> None:
    """One that cannot be read says nothing."""
    path = repository.parent / "event.json"
    path.write_text(event)
    assert place(repository, {"GITHUB_EVENT_PATH": str(path)}).refusal == refusal
    assert place(repository, {"GITHUB_EVENT_PATH": str(repository / "absent")}).refusal == ""
