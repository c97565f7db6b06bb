"""The base revision: which commit the working tree is compared with, and its files in a folder of their own.

The files are the bytes of git's blobs. What git would make of them in a checkout is up to attributes, which are files of
the revision under test: line ends, encodings and filters would let it choose what it is compared with.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from pytest_cgins.core import git
from pytest_cgins.core.errors import RevisionError

MERGE_BASE = "merge-base"
NONE = "none"
TARGETS = (
    "GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CHANGE_TARGET", "BITBUCKET_PR_DESTINATION_BRANCH"
)  # fmt: skip
"""Variables in which GitHub, GitLab, Jenkins and Bitbucket name the branch that a pull request goes into."""
BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
"""Where the default branch is looked for, in this order."""
FILE_LIMIT_NBYTES = 4 << 20
"""Larger files are not sources of kernels, and are left out."""
STALE_S = 24 * 3600.0
LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ [^\n]*\n)*?oid sha256:([0-9a-f]{64})\n"
)
LFS_POINTER_LIMIT_NBYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One commit of the repository that a folder is in."""

    commit: str
    """40 hex digits."""
    chosen: str
    """How it was found, for messages: `merge-base with origin/main`, or the name that was given."""
    repository: Path
    """Top folder of the working tree."""
    prefix: str
    """From there to the folder that was asked about: "" or `a/b/`."""

    @property
    def label(self) -> str:
        """For messages: `1a2b3c4d5e (merge-base with main)`."""
        return f"{self.commit[:10]} ({self.chosen})"


def resolve(wanted: str, folder: Path) -> Revision:
    """The commit that a name means.

    Args:
        wanted: `merge-base`, or anything that git takes for a commit. `merge-base` is the last commit that HEAD and
            the default branch share: in a pull request the branch that it goes into, else the first of `BRANCHES`
            that exists. On the default branch itself that is HEAD, so that only uncommitted edits differ.
        folder: a folder of the working tree.

    Raises:
        RevisionError: there is no repository, no such commit, or the clone is too shallow to know.
    """
    top = Path(git.read(folder, "rev-parse", "--show-toplevel").strip())
    prefix = git.read(folder, "rev-parse", "--show-prefix").strip()
    if wanted == MERGE_BASE:
        commit, chosen = _merge_base(top)
    else:
        found = _commit(top, wanted)
        if found is None:
            raise RevisionError(f'git knows no commit "{wanted}" in {top}', remedy=_deepen(top))
        commit, chosen = found, wanted
    return Revision(commit=commit, chosen=chosen, repository=top, prefix=prefix)


def target_branch() -> str:
    """The branch that the pull request of this run goes into; "" outside of one."""
    return next((os.environ[name] for name in TARGETS if os.environ.get(name)), "")


def _merge_base(top: Path) -> tuple[str, str]:
    if _commit(top, "HEAD") is None:
        raise RevisionError(f"{top} has no commit yet", remedy="commit once")
    pull_request = target_branch()
    branches = (f"origin/{pull_request}", pull_request) if pull_request else BRANCHES
    branch = next((name for name in branches if _commit(top, name)), None)
    if branch is None and os.environ.get("GITHUB_BASE_REF") and _is_checked_out_merge(top):
        # GitHub's runner checks out the merge of the pull request into its base; others the branch itself.
        return str(_commit(top, "HEAD^1")), f"the base of this merge into {pull_request}"
    if branch is None:
        raise RevisionError(
            f"no {'target' if pull_request else 'default'} branch in {top}: none of {', '.join(branches)}",
            remedy=_deepen(top),
        )
    shared = git.read(top, "merge-base", "HEAD", branch, check=False).strip()
    if not shared:
        raise RevisionError(f"HEAD and {branch} share no commit that is in {top}", remedy=_deepen(top))
    return shared, f"merge-base with {branch}"


def _is_checked_out_merge(top: Path) -> bool:
    """Whether HEAD is what GitHub runs, and not another merge, as of the base into the pull request's branch."""
    return os.environ.get("GITHUB_SHA") == _commit(top, "HEAD") and _commit(top, "HEAD^2") is not None


def _commit(top: Path, name: str) -> str | None:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return git.read(top, *words, check=False).strip() or None


def _deepen(top: Path) -> str:
    if git.read(top, "rev-parse", "--is-shallow-repository", check=False).strip() == "true":
        return "the clone is shallow: fetch its history (git fetch --unshallow; actions/checkout with fetch-depth: 0)"
    return "name a commit that is there: --cgins-baseline=REV, or --baseline REV of cgins build"


def changes(revision: Revision, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What tracked files differ from a commit's; of some it is only that they may, by their times.

    A file whose bytes are not those of its blob differs too: git, which converts it by the attributes of the working
    tree, sees no difference.

    Args:
        revision: the commit.
        paths: git's pathspecs, from the top of the repository.

    Returns:
        Pairs of git's letter (`A`, `D`, `M`, `T`) and a path from the top.

    Raises:
        RevisionError: git cannot tell.
    """
    if not paths:
        return ()  # git takes no path for all paths
    # A `.gitmodules` may say that changes of a submodule are to be ignored.
    words = ("diff-index", "--name-status", "--no-renames", "--ignore-submodules=none", "-z", revision.commit)
    told = git.read(revision.repository, *words, "--", *paths).split("\0")
    found = dict(zip(told[1::2], told[0:-1:2], strict=True))
    for entry in git.read(revision.repository, "ls-files", "--stage", "-z", "--", *paths).split("\0")[:-1]:
        about, _, path = entry.partition("\t")
        mode, digest, _ = about.split()
        if path not in found and mode.startswith("100") and _is_converted(revision.repository / path, digest):
            found[path] = "M"
    return tuple((kind, path) for path, kind in found.items())


def _is_converted(file: Path, digest: str) -> bool:
    """Whether a file has other bytes than its blob; no if it is not there, or larger than any source."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size <= FILE_LIMIT_NBYTES:
                content = opened.read(FILE_LIMIT_NBYTES + 1)
                made = hashlib.new("sha256" if len(digest) == 64 else "sha1", usedforsecurity=False)
                made.update(b"blob %d\0" % len(content) + content)
                return made.hexdigest() != digest
    return False


def text_of(revision: Revision, path: str) -> str:
    """A file of a commit, given by its path from the top; what is not UTF-8 is escaped.

    Raises:
        RevisionError: it is not there, or git cannot read it.
    """
    return git.read(revision.repository, "cat-file", "blob", f"{revision.commit}:{path}")


def untracked(revision: Revision, paths: Sequence[str]) -> tuple[str, ...]:
    """Files that git knows nothing of and is not told to ignore, by their paths from the top.

    Args:
        revision: of the repository that is meant.
        paths: git's pathspecs, from the top.

    Raises:
        RevisionError: git cannot tell.
    """
    words = ("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    return tuple(git.read(revision.repository, *words).split("\0")[:-1])


def has_all(revision: Revision, paths: Sequence[str]) -> bool:
    """Whether a commit has all these files, given by their paths from the top.

    Raises:
        RevisionError: git cannot tell.
    """
    return not paths or _files(revision.repository, revision.commit).issuperset(paths)


@lru_cache(maxsize=4)  # asked of each kernel
def _files(repository: Path, commit: str) -> set[str]:
    return set(git.read(repository, "ls-tree", "-r", "--name-only", "--full-tree", "-z", commit).split("\0"))


class Checkout:
    """The files of a commit in a temporary folder."""

    def __init__(self, revision: Revision, under: Path, *, names: Container[str] | None = None) -> None:
        """Write them.

        Args:
            revision: which commit.
            under: folder for such temporary folders; made if need be.
            names: only files that are called so, of whatever size; None for all up to `FILE_LIMIT_NBYTES`.

        Raises:
            RevisionError: git cannot read it, or the disk does not take it.
        """
        self.revision = revision
        self._names = names
        try:
            under.mkdir(parents=True, exist_ok=True)
            _sweep(under)
            self._folder = Path(tempfile.mkdtemp(prefix=f"{revision.commit[:10]}-", dir=under))
        except OSError as error:
            remedy = "make room, or set CGINS_CACHE_DIR"
            raise RevisionError(f"{under}: {error.strerror}", remedy=remedy) from error
        self._pointers: set[Path] = set()
        self._stores: dict[Path, Path] = {}
        try:
            self.top.mkdir()
            self._write_commit(revision.repository, revision.commit, self.top)
        except BaseException:
            self.close()
            raise

    @property
    def root(self) -> Path:
        """The counterpart of the folder that the revision was resolved for."""
        return self.top / self.revision.prefix

    @property
    def top(self) -> Path:
        """The counterpart of the top folder of the working tree."""
        return self._folder / "tree"

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def require_content(self, files: Iterable[Path | str]) -> None:
        """Refuse files of this folder of which the clone has no more than pointers of Git LFS.

        Raises:
            RevisionError: one is such a file.
        """
        for file in files:
            if Path(file) in self._pointers:
                path = Path(file).relative_to(self.top)
                raise RevisionError(
                    f"{path} at {self.revision.label} is a pointer of Git LFS, and its content is not in this clone",
                    remedy=f"git lfs fetch origin {self.revision.commit}",
                )

    def _write_commit(self, repository: Path, commit: str, tree: Path) -> None:
        """Write the files of a commit of a repository, and of its submodules where their commits are in this clone."""
        files: list[tuple[str, str, Path]] = []
        links: list[tuple[Path, bytes]] = []
        for mode, digest, nbytes, path in _listed(repository, commit):
            place = _inside(tree, path)
            if mode == "160000":
                present = repository / path
                if not (present / ".git").exists():
                    continue
                same = Revision(commit=digest, chosen="submodule", repository=present, prefix="")
                if _commit(present, "HEAD") == digest and not changes(same, ["."]):
                    links.append((place, os.fsencode(present)))  # thousands of files, byte for byte
                elif _commit(present, digest) == digest:
                    self._write_commit(present, digest, place)
            elif nbytes <= FILE_LIMIT_NBYTES if self._names is None else place.name in self._names:
                files.append((mode, digest, place))
        wanted = "".join(f"{digest}\n" for _, digest, _ in files)
        with tempfile.TemporaryFile(dir=self._folder) as read:
            git.read(repository, "cat-file", "--batch", given=wanted.encode(), output=read)
            read.seek(0)
            for mode, digest, place in files:
                content = _next_blob(read, digest)
                if mode == "120000":
                    links.append((place, content))
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(self._behind_pointer(repository, content, place))
                if mode == "100755":
                    place.chmod(0o755)
        for place, content in links:  # after all files, so that none is written through one
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(os.fsdecode(content))

    def _behind_pointer(self, repository: Path, content: bytes, path: Path) -> bytes:
        """What a pointer of Git LFS stands for, if this clone has it; other content as it is."""
        found = LFS_POINTER.match(content) if len(content) <= LFS_POINTER_LIMIT_NBYTES else None
        if found is None:
            return content
        digest = found[1].decode("ascii")
        if repository not in self._stores:
            folder = git.read(repository, "rev-parse", "--git-common-dir").rstrip("\n")
            self._stores[repository] = repository / folder / "lfs" / "objects"
        stored = self._stores[repository] / digest[:2] / digest[2:4] / digest
        with suppress(OSError):
            small = stored.stat().st_size <= FILE_LIMIT_NBYTES
            real = stored.read_bytes() if small or self._names is not None else b""
            if hashlib.sha256(real).hexdigest() == digest:
                return real
        self._pointers.add(path)
        return content


def _inside(tree: Path, path: str) -> Path:
    """Where a file of a commit is written.

    Raises:
        RevisionError: its path leads elsewhere, which no git would have made.
    """
    parts = path.split("/")
    if not {"", ".", "..", ".git"}.isdisjoint(part.lower() for part in parts):
        raise RevisionError(f"{path!r} is not a path of a file in git", remedy="look at the commit: git fsck")
    return tree.joinpath(*parts)


def _next_blob(read: BinaryIO, digest: str) -> bytes:
    """The next answer of `git cat-file --batch`.

    Raises:
        RevisionError: the object is missing, as in a clone that left some out, or damaged.
    """
    words = read.readline().split()
    content = read.read(int(words[2]) + 1)[:-1] if len(words) == 3 and words[1] == b"blob" else None
    if content is None or words[0] != digest.encode() or len(content) != int(words[2]):
        raise RevisionError(
            f"git has no object {digest[:10]} of the base revision",
            remedy="fetch it: git fetch --refetch origin",
        )
    return content


def _listed(top: Path, commit: str) -> Iterator[tuple[str, str, int, str]]:
    """Mode, digest, bytes and path of each file and submodule of a commit."""
    for entry in git.read(top, "ls-tree", "-r", "-l", "-z", "--full-tree", commit).split("\0"):
        if entry:
            about, _, path = entry.partition("\t")
            mode, _, digest, nbytes = about.split()
            yield mode, digest, int(nbytes) if nbytes.isdigit() else 0, path


def _sweep(under: Path) -> None:
    """Remove what runs that were killed left behind."""
    for folder in under.iterdir():
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > STALE_S:
                shutil.rmtree(folder, ignore_errors=True)
