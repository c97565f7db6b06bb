"""The commit that is compared with, and its files."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from pytest_cgins.building.revision.merge_base import (
    FILE_LIMIT_NBYTES,
    MERGE_BASE,
    TARGETS,
    Checkout,
    changes,
    resolve,
)
from pytest_cgins.core.errors import RevisionError
from tests.repository import git


def commit(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """main with two commits and a folder `project`."""
    for name in TARGETS:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "project/k.cu", "first")
    commit(folder, "include/k.cuh", "header")
    return folder


def test_merge_base_with_the_default_branch(repository: Path) -> None:
    """On a branch it is where the branch began, also when main has gone on; on main it is HEAD."""
    base = git(repository, "rev-parse", "HEAD")
    found = resolve(MERGE_BASE, repository / "project")
    assert (found.commit, found.prefix, found.repository) == (base, "project/", repository)
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "project/k.cu", "second")
    git(repository, "checkout", "-q", "main")
    commit(repository, "other", "main goes on")
    git(repository, "checkout", "-q", "topic")
    found = resolve(MERGE_BASE, repository / "project")
    assert (found.commit, found.label) == (base, f"{base[:10]} (merge-base with main)")


def test_pull_requests_of_a_runner(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GITHUB_BASE_REF names the branch; of a merge commit without that branch, its first parent is the base."""
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "project/k.cu", "second")
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    assert resolve(MERGE_BASE, repository).commit == base
    git(repository, "checkout", "-q", "-b", "pull", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "2", "--branch", "pull", repository.as_uri(), str(clone))
    with pytest.raises(RevisionError):  # it may be a merge of the base into the pull request
        resolve(MERGE_BASE, clone)
    monkeypatch.setenv("GITHUB_SHA", git(repository, "rev-parse", "HEAD"))
    found = resolve(MERGE_BASE, clone)
    assert (found.commit, found.chosen) == (base, "the base of this merge into main")


@pytest.mark.parametrize("variable", TARGETS)
def test_pull_requests_into_another_branch(
    repository: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Each service names the branch that it goes into; what was removed there before is not compared with."""
    git(repository, "checkout", "-q", "-b", "release")
    base = commit(repository, "project/k.cu", "release")
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "project/k.cu", "topic")
    monkeypatch.setenv(variable, "release")
    assert resolve(MERGE_BASE, repository).label == f"{base[:10]} (merge-base with release)"


def test_a_shallow_clone_says_how_to_deepen_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a clone does not have cannot be compared with, and the remedy is named."""
    git(repository, "checkout", "-q", "-b", "topic")
    commit(repository, "project/k.cu", "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "topic", repository.as_uri(), str(clone))
    git(clone, "remote", "remove", "origin")
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    for wanted in (MERGE_BASE, "HEAD^"):
        with pytest.raises(RevisionError) as caught:
            resolve(wanted, clone)
        assert "fetch-depth: 0" in caught.value.remedy


def test_no_repository_no_commit_no_such_name(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each says what is missing."""
    with pytest.raises(RevisionError, match="is in no git repository"):
        resolve(MERGE_BASE, tmp_path)
    with pytest.raises(RevisionError, match='git knows no commit "--all" in '):
        resolve("--all", repository)
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q", "-b", "trunk")
    with pytest.raises(RevisionError, match="has no commit yet"):
        resolve(MERGE_BASE, empty)
    commit(empty, "a", "a")
    with pytest.raises(RevisionError, match=r"no default branch in .*: none of origin/HEAD, origin/main, "):
        resolve(MERGE_BASE, empty)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RevisionError, match="git is not installed"):
        resolve(MERGE_BASE, repository)


def test_files_of_the_commit_and_nothing_of_the_working_tree(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edits, the index and untracked files are not in it, whatever git's own variables say; nor are huge files."""
    (repository / "huge.bin").write_bytes(b"0" * (FILE_LIMIT_NBYTES + 1))
    (repository / ".gitattributes").write_text("include export-ignore\n")
    commit(repository, "project/naïve name.cu", "kept")
    (repository / "project" / "k.cu").write_text("edited")
    (repository / "project" / "untracked").write_text("")
    git(repository, "add", "project/untracked")
    before = git(repository, "status", "--porcelain")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "another index"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another repository"))
    checkout = Checkout(resolve("HEAD", repository / "project"), tmp_path / "revisions")
    monkeypatch.delenv("GIT_INDEX_FILE")
    monkeypatch.delenv("GIT_DIR")
    assert sorted(path.name for path in checkout.root.iterdir()) == ["k.cu", "naïve name.cu"]
    assert (checkout.root / "k.cu").read_text() == "first"
    assert (checkout.root.parent / "include" / "k.cuh").read_text() == "header"
    assert not (checkout.root.parent / "huge.bin").exists()
    assert git(repository, "status", "--porcelain") == before
    checkout.close()
    assert list((tmp_path / "revisions").iterdir()) == []


def library(tmp_path: Path) -> str:
    """A repository to be a submodule."""
    folder = tmp_path / "library"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "lib.cuh", "library")
    return str(folder)


def test_a_submodule_is_that_of_the_commit(repository: Path, tmp_path: Path) -> None:
    """Its files are those of the commit that the base names, wherever the submodule's working tree is."""
    git(repository, "submodule", "add", "-q", library(tmp_path), "third party")
    git(repository, "commit", "-q", "-m", "submodule")
    own = "third party/lib.cuh"
    for change in (
        lambda: None,
        lambda: (repository / own).write_text("edited"),
        lambda: commit(repository / "third party", "lib.cuh", "newer"),
    ):
        change()
        checkout = Checkout(resolve("HEAD", repository), tmp_path / "revisions")
        assert (checkout.root / own).read_text() == "library"
        checkout.close()


def test_what_a_killed_run_left_is_swept(repository: Path, tmp_path: Path) -> None:
    """Folders of another day go; those of runs that may still be there stay."""
    under = tmp_path / "revisions"
    (under / "old").mkdir(parents=True)
    (under / "new").mkdir()
    long_ago = time.time() - 3 * 24 * 3600
    os.utime(under / "old", (long_ago, long_ago))
    Checkout(resolve("HEAD", repository), under).close()
    assert [path.name for path in under.iterdir()] == ["new"]


CONVERSIONS = {
    "an encoding": "*.cu working-tree-encoding=UTF-16LE-BOM",
    "line ends": "*.cu text eol=crlf",
    "an identity": "*.cu ident",
    "a filter": "*.cu filter=louder",
    "an archive's rules": "*.cu export-ignore\n*.cu export-subst",
    "binary files": "*.cu binary -diff",
}


@pytest.fixture
def sources(repository: Path) -> tuple[Path, str]:
    """A repository whose base has two sources; one is gone since. `filter.louder` is set up in the clone."""
    commit(repository, "project/old.cu", "// $Id$\nslow $Format:%H$\n")
    base = commit(repository, "project/k.cu", "// $Id$\nfast\n")
    git(repository, "config", "filter.louder.smudge", "tr a-z A-Z")
    git(repository, "rm", "-q", "project/old.cu")
    git(repository, "commit", "-q", "-m", "gone")
    return repository, base


@pytest.mark.parametrize("attributes", CONVERSIONS.values(), ids=CONVERSIONS)
def test_attributes_of_the_head_do_not_touch_the_base(
    sources: tuple[Path, str], tmp_path: Path, attributes: str
) -> None:
    """Wherever they are written, and whatever they ask for, the base's files are git's own bytes."""
    repository, base = sources
    for place in (".gitattributes", "project/.gitattributes", ".git/info/attributes"):
        (repository / place).write_text(attributes)
    checkout = Checkout(resolve(base, repository), tmp_path / "revisions")
    assert (checkout.root / "project/old.cu").read_bytes() == b"// $Id$\nslow $Format:%H$\n"
    assert (checkout.root / "project/k.cu").read_bytes() == b"// $Id$\nfast\n"
    checkout.close()


def test_settings_and_stand_ins_of_a_clone_do_not_touch_the_base(
    sources: tuple[Path, str], tmp_path: Path
) -> None:
    """Line ends and attributes of git's settings, a replaced blob, a replaced commit, a graft."""
    repository, base = sources
    other = git(repository, "hash-object", "-w", "include/k.cuh")
    (tmp_path / "attributes").write_text("*.cu eol=crlf\n")
    git(repository, "config", "core.autocrlf", "true")
    git(repository, "config", "core.attributesFile", str(tmp_path / "attributes"))
    git(repository, "replace", f"{base}:project/k.cu", other)
    git(repository, "replace", base, f"{base}~2")
    git(repository, "checkout", "-q", "-b", "topic")
    (repository / ".git" / "info" / "grafts").write_text(f"{base} {git(repository, 'rev-parse', 'main')}\n")
    git(repository, "branch", "-q", "-f", "main", base)
    found = resolve(MERGE_BASE, repository)
    assert found.commit == base
    checkout = Checkout(found, tmp_path / "revisions")
    assert (checkout.root / "project/k.cu").read_bytes() == b"// $Id$\nfast\n"
    checkout.close()


def test_a_file_with_other_bytes_than_its_blob_has_changed(sources: tuple[Path, str]) -> None:
    """Attributes have git take a converted file for unchanged; the compiler reads its bytes."""
    repository, _ = sources
    head = resolve("HEAD", repository)
    assert changes(head, ["project"]) == ()
    (repository / ".gitattributes").write_text("*.cu text eol=crlf\n")
    (repository / "project/k.cu").unlink()
    git(repository, "checkout", "-q", "project/k.cu")
    assert (repository / "project/k.cu").read_bytes().endswith(b"\r\n")
    assert git(repository, "diff-index", "--name-only", "HEAD", "--", "project") == ""
    assert changes(head, ["project"]) == (("M", "project/k.cu"),)


def test_a_submodule_that_is_to_be_ignored_has_changed(repository: Path, tmp_path: Path) -> None:
    """`ignore = all` in .gitmodules hides another commit from git's own comparison."""
    git(repository, "submodule", "add", "-q", library(tmp_path), "lib")
    git(repository, "config", "-f", ".gitmodules", "submodule.lib.ignore", "all")
    base = resolve(commit(repository, "more", "submodule"), repository)
    commit(repository / "lib", "lib.cuh", "newer")
    assert ("M", "lib") in changes(base, ["lib"])


def test_a_pointer_of_lfs_is_what_it_points_to_or_told(repository: Path, tmp_path: Path) -> None:
    """Content that the clone has, and whose digest is right, is read; else the file is refused with what fetches it."""
    digest = hashlib.sha256(b"slow").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 4\n"
    base = resolve(commit(repository, "project/k.cu", pointer), repository)
    stored = repository / ".git/lfs/objects" / digest[:2] / digest[2:4] / digest
    stored.parent.mkdir(parents=True)
    for content, told in ((b"slow", False), (b"fast", True)):
        stored.write_bytes(content)
        checkout = Checkout(base, tmp_path / "revisions")
        file = checkout.root / "project/k.cu"
        checkout.require_content([checkout.root / "include/k.cuh"])
        if told:
            with pytest.raises(RevisionError, match=r"project/k\.cu at .* is a pointer of Git LFS") as caught:
                checkout.require_content([file])
            assert caught.value.remedy == f"git lfs fetch origin {base.commit}"
        else:
            checkout.require_content([file])
            assert file.read_bytes() == b"slow"
        checkout.close()


def test_links_and_modes_of_the_commit(repository: Path, tmp_path: Path) -> None:
    """A link stays one and nothing is written through it; an executable file stays one."""
    (repository / "project/link.cu").symlink_to("k.cu")
    (repository / "project/k.cu").chmod(0o755)
    checkout = Checkout(resolve(commit(repository, "a", "a"), repository), tmp_path / "revisions")
    assert (checkout.root / "project/link.cu").readlink() == Path("k.cu")
    assert os.access(checkout.root / "project/k.cu", os.X_OK)
    checkout.close()


def test_an_object_that_is_missing_is_told(repository: Path, tmp_path: Path) -> None:
    """A clone that lost a blob has no base, and not one with fewer files."""
    blob = git(repository, "rev-parse", "HEAD:project/k.cu")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(RevisionError):
        Checkout(resolve("HEAD", repository), tmp_path / "revisions")
    assert list((tmp_path / "revisions").iterdir()) == []
