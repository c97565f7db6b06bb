"""The files of a commit in a folder of their own, and where its packs are."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.regenerate.proposal import rebase
from tests.regenerate import proposals
from tests.regenerate.proposals import OLD, PATH, YAML, git


def _packs(project: Path, top: Path) -> tuple[Path, ...]:
    return rebase.config_of(project, "cgins.yaml", top).traces


def test_a_commit_on_no_branch_of_a_shallow_clone(tmp_path: Path) -> None:
    """Its files are there, hooks of nobody run, and the clone is as it was."""
    proposals.project(tmp_path / "origin")
    (tmp_path / "origin" / PATH).write_text("newer\n")
    git(tmp_path / "origin", "commit", "--quiet", "--all", "--message", "newer")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{tmp_path}/origin", "clone")
    (tmp_path / "origin" / PATH).write_text("newest\n")
    git(tmp_path / "origin", "commit", "--quiet", "--all", "--message", "newest")
    clone = tmp_path / "clone"
    git(clone, "fetch", "--quiet", "--depth=1", "--no-write-fetch-head", "origin", "HEAD")
    newest = git(tmp_path / "origin", "rev-parse", "HEAD")
    (clone / ".git/hooks/post-checkout").write_text("#!/bin/sh\ntouch ran\n")
    (clone / ".git/hooks/post-checkout").chmod(0o755)
    before = {path: path.stat().st_mtime_ns for path in clone.rglob("*")}
    (tmp_path / "empty").mkdir()
    project = rebase.checkout(clone, rebase.commit_of(clone, newest), tmp_path / "empty")
    assert (project / PATH).read_text() == "newest\n"
    assert git(project, "rev-parse", "HEAD") == newest
    assert git(project, "status", "--porcelain") == ""
    assert {path: path.stat().st_mtime_ns for path in clone.rglob("*")} == before


def test_a_commit_that_is_not_there(tmp_path: Path) -> None:
    """What git does not know, and what is not a commit, is refused."""
    proposals.project(tmp_path)
    for name in ("0" * 40, f"HEAD:{PATH}", "--help", ""):
        with pytest.raises(ProposalError, match="git knows no commit"):
            rebase.commit_of(tmp_path, name)


def test_packs(tmp_path: Path) -> None:
    """Those in the commit are the commit's; those outside of git, of the repository or of both are where they were."""
    top, outside = tmp_path / "project", tmp_path / "absolute"
    packs = f"[traces/tiny, traces/ignored, ../beside, {outside}]"
    proposals.project(
        top,
        {
            "cgins.yaml": YAML.replace("[traces/tiny]", packs),
            "traces/tiny/manifest.json": "then",
            "traces/tiny/gone.bin": "gone",
            ".gitignore": "/traces/ignored/\n*.safetensors\n",
        },
    )
    git(top, "rm", "--quiet", "traces/tiny/gone.bin")
    git(top, "commit", "--quiet", "--message", "less")
    commit = git(top, "rev-parse", "HEAD")
    git(top, "checkout", "--quiet", "HEAD^")
    (top / "traces/tiny/manifest.json").write_text("edited")
    (top / "traces/tiny/blob.safetensors").write_text("of the working tree")
    (top / "traces/ignored").mkdir()
    outside.mkdir()
    (tmp_path / "empty").mkdir()
    project = rebase.checkout(top, commit, tmp_path / "empty")
    tiny = project / "traces/tiny"
    assert _packs(project, top) == (tiny, top / "traces/ignored", tmp_path / "beside", outside)
    assert {file.name: file.read_text() for file in tiny.iterdir()} == {
        "manifest.json": "then",
        "blob.safetensors": "of the working tree",
    }


def test_a_pack_that_the_commit_has_not(tmp_path: Path) -> None:
    """What the working tree has in git, and the commit does not, is not taken."""
    top = tmp_path / "project"
    commit = proposals.project(top)
    (top / "traces/tiny").mkdir(parents=True)
    (top / "traces/tiny/manifest.json").write_text("later")
    git(top, "add", "--all")
    (tmp_path / "empty").mkdir()
    project = rebase.checkout(top, commit, tmp_path / "empty")
    assert _packs(project, top) == (project / "traces/tiny",)
    assert not (project / "traces").exists()


@pytest.mark.parametrize("same", [True, False])
def test_files_that_lfs_keeps(tmp_path: Path, same: bool) -> None:
    """A pointer is filled from the working tree if that has the file it points to, and no other."""
    content = b"many numbers"
    digest = hashlib.sha256(content if same else b"others").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
    top = tmp_path / "project"
    commit = proposals.project(top, {"traces/tiny/blob.safetensors": pointer})
    (top / "traces/tiny/blob.safetensors").write_bytes(content)
    (tmp_path / "empty").mkdir()
    project = rebase.checkout(top, commit, tmp_path / "empty")
    _packs(project, top)
    assert (project / "traces/tiny/blob.safetensors").read_bytes() == (content if same else pointer.encode())


def test_from_a_linked_worktree(tmp_path: Path) -> None:
    """Objects are found where the repository has them, and a place that a link leads to is one."""
    commit = proposals.project(tmp_path / "project")
    git(tmp_path / "project", "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    shutil.rmtree(tmp_path / "linked" / "kernels")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    project = rebase.checkout(tmp_path / "linked", commit, tmp_path / "link")
    assert project.is_relative_to(tmp_path / "empty")
    assert (project / PATH).read_text() == OLD
