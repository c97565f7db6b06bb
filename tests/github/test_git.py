"""git past the working tree, the index and the settings of a clone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_cgins.errors import GitHubError
from pytest_cgins.github.git import Git, Identity
from pytest_cgins.github.remote import parse
from tests.github import twin as twins
from tests.github.conftest import SOURCE, Place, commit, git

ADA = Identity(name="Ada", email="ada@team.example")


@pytest.fixture
def tool(place: Place) -> Git:
    """For the clone, with a token for the twin."""
    return Git(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))


def test_a_commit_has_the_given_bytes_on_the_given_base(place: Place, tool: Git) -> None:
    """Carriage returns and settings of line ends change nothing, and all other files stay."""
    git(place.clone, "config", "core.autocrlf", "input")
    tip = tool.fetch(place.twin.remote, "main")
    assert tip == place.tip("main")
    content = b"a\r\nb\n\xc3\xa9"
    made = tool.commit(tool.tree(tip, {SOURCE: content, "new/x.cu": b"x"}), tip, "Words\n", ADA)
    entry = tool.entry(made, SOURCE)
    assert entry
    assert tool.read(entry[1]) == content
    changed = git(place.clone, "diff", "--name-only", tip, made)
    assert changed.split() == [SOURCE, "new/x.cu"]


def test_a_push_needs_the_tip_that_was_seen(place: Place, tool: Git) -> None:
    """A new branch must not exist, and one that exists must not have moved."""
    tip = str(tool.fetch(place.twin.remote, "main"))
    made = tool.commit(tool.tree(tip, {SOURCE: b"x"}), tip, "Words\n", ADA)
    tool.push(place.twin.remote, made, "work", expected=None)
    assert place.tip("work") == made
    with pytest.raises(GitHubError, match="git push failed") as caught:
        tool.push(place.twin.remote, tip, "work", expected=None)
    assert "changed by somebody else meanwhile" in caught.value.remedy
    tool.push(place.twin.remote, tip, "work", expected=made)
    assert place.tip("work") == tip


def test_commits_of_a_branch_are_listed_with_their_trailers(place: Place, tool: Git) -> None:
    """Newest first, without those of the base; a line in the middle of a message is no trailer."""
    commit(place.other, {"a": "1"}, branch="work", message="One\n\nKey: no\n\nmore words")
    commit(place.other, {"a": "2"}, branch="work", message="Two\n\nWords\n\nKey: yes\nOther: a: b")
    tip, base = tool.fetch(place.twin.remote, "work"), tool.fetch(place.twin.remote, "main")
    two, one = tool.commits(str(tip), str(base))
    assert (two.trailers, one.trailers) == ({"Key": "yes", "Other": "a: b"}, {})
    assert (two.id, two.parents, two.author) == (tip, (one.id,), "ada@team.example")


def test_what_is_not_there(place: Place, tool: Git, tmp_path: Path) -> None:
    """No such branch, file, remote, repository or folder."""
    assert tool.fetch(place.twin.remote, "nowhere") is None
    assert tool.entry(place.tip("main"), "no/such.cpp") is None
    with pytest.raises(GitHubError, match='"kernels": "kernels" is a folder on the base branch'):
        tool.entry(place.tip("main"), "kernels")
    with pytest.raises(GitHubError, match='git knows no remote "upstream"'):
        tool.remote_url("upstream")
    with pytest.raises(GitHubError, match="not a git repository"):
        Git(tmp_path).prefix()
    with pytest.raises(GitHubError, match="no such folder"):
        Git(tmp_path / "none")


def test_the_token_goes_to_one_repository(place: Place) -> None:
    """Another repository of the same server gets none, and git does not ask for one."""
    tool = Git(place.clone, token=twins.WRITER, remote=parse(f"{place.twin.url}/octo/another"))
    with pytest.raises(GitHubError, match="git ls-remote failed"):
        tool.fetch(place.twin.remote, "main")
    assert {one.authorization for one in place.twin.requests} == {""}


def test_variables_of_git_do_not_interfere(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook's own GIT_DIR and GIT_INDEX_FILE, or a user's settings that send addresses elsewhere, are not heeded."""
    tip = place.tip("main")
    monkeypatch.setenv("GIT_DIR", os.devnull)
    monkeypatch.setenv("GIT_INDEX_FILE", os.devnull)
    settings = place.clone.parent / "home/.gitconfig"
    settings.parent.mkdir()
    settings.write_text(f'[url "https://elsewhere.example/"]\n  insteadOf = {place.twin.url}/\n')
    monkeypatch.setenv("HOME", str(settings.parent))
    tool = Git(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))
    assert tool.fetch(place.twin.remote, "main") == tip
