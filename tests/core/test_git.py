"""The git command: whose settings it heeds, and what it says when it fails."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

import pytest_cgins
from pytest_cgins.core import git
from pytest_cgins.core.errors import GitError, RevisionError
from tests.building.processes import executable


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which each hook leaves a mark, of a user who ignores *.log and dresses up *.txt."""
    home, folder = tmp_path / "home", tmp_path / "repository"
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("*.log\n")
    (home / ".config/git/attributes").write_text("*.txt filter=dress\n")
    (home / ".gitconfig").write_text(
        '[safe]\n  directory = /trusted\n[filter "dress"]\n  clean = false\n  required\n'
    )
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run(["git", "init", "--quiet", "-b", "main", folder], check=True)
    for name in ("pre-commit", "post-checkout", "post-index-change"):
        executable(folder / ".git/hooks" / name, f'#!/bin/sh\ntouch "{tmp_path}/a-hook-ran"\n')
    return folder


def test_a_person_s_settings_are_heeded_for_their_own_files(repository: Path) -> None:
    """Files that the user's settings ignore are not listed; alone, git lists them."""
    (repository / "a.log").write_text("")
    words = ("ls-files", "--others", "--exclude-standard", "-z")
    assert git.read(repository, *words) == ""
    assert git.run(repository, *words, environment=git.isolated()) == b"a.log\0"


def test_nothing_of_the_users_runs_in_a_repository_of_our_own(repository: Path, tmp_path: Path) -> None:
    """No hook and no filter: the bytes are stored as they are. What the user trusts is trusted."""
    (repository / "a.txt").write_text("as it is\r\n")
    environment = git.isolated([("user.name", "T"), ("user.email", "t@localhost")])
    for words in (["add", "--all"], ["commit", "--quiet", "-m", "x"], ["checkout", "--quiet", "-b", "y"]):
        git.run(repository, *words, environment=environment)
    assert git.run(repository, "cat-file", "blob", "HEAD:a.txt", environment=environment) == b"as it is\r\n"
    unfiltered = ("-c", f"core.attributesFile={os.devnull}")
    assert git.read(repository, *unfiltered, "checkout", "--quiet", "-b", "z") == ""
    assert not (tmp_path / "a-hook-ran").exists()
    assert git.run(repository, "config", "safe.directory", environment=environment) == b"/trusted\n"


def test_secrets_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither tokens nor what a hook that runs us has set for its own git."""
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
    monkeypatch.setenv("GIT_DIR", os.devnull)
    assert {"GITHUB_TOKEN", "GIT_DIR"}.isdisjoint(git.isolated())


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_which_variables_name_a_proxy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """All of them reach git, in upper and in lower case; other addresses with a password do not."""
    monkeypatch.setenv(name, "http://ada:hunter2@proxy.example:3128")
    monkeypatch.setenv("MY_ADDRESS", "http://ada:hunter2@proxy.example:3128")
    environment = git.isolated()
    assert environment[name] == "http://ada:hunter2@proxy.example:3128"
    assert "MY_ADDRESS" not in environment


def test_what_fails_is_told_with_a_remedy(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git's own first line; that there is no repository, or no git; a command that takes too long."""
    with pytest.raises(GitError, match=r"git rev-parse in .*repository: Needed a single revision") as caught:
        git.run(repository, "rev-parse", "--verify", "none", environment=git.isolated())
    assert caught.value.remedy == "run it by hand"
    assert git.read(repository, "rev-parse", "--verify", "none", check=False) == ""
    with pytest.raises(RevisionError, match="is in no git repository"):
        git.read(tmp_path, "status")
    fake = executable(tmp_path / "bin/git", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    with pytest.raises(GitError, match=r"git cat-file in .* took more than 0.2 s") as caught:
        git.run(repository, "cat-file", environment=dict(os.environ), limit_s=0.2)
    assert "server" in caught.value.remedy
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RevisionError, match="git is not installed") as missing:
        git.read(repository, "status", check=False)
    assert missing.value.remedy.startswith("install git")


@pytest.mark.exam
def test_nobody_else_runs_git() -> None:
    """One place knows its environment, its limits and its errors."""
    top = Path(pytest_cgins.__file__).parent
    commands = {
        str(file.relative_to(top))
        for file in top.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.List)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value == "git"
    }
    assert commands == {"core/git.py"}
