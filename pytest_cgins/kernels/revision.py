"""The base revision: which commit the working tree is compared with, and its files in a folder of their own.

The files are read from git's objects through an index of their own: neither the working tree nor the
repository's index, its list of work trees or its hooks are touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.errors import RevisionError

MERGE_BASE = "merge-base"
NONE = "none"
TARGETS = (
    "GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CHANGE_TARGET", "BITBUCKET_PR_DESTINATION_BRANCH"
)  # fmt: skip
"""Variables in which GitHub, GitLab, Jenkins and Bitbucket name the branch that a pull request goes into."""
BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
"""Where the default branch is looked for, in this order."""
FILE_LIMIT_NBYTES = 4 << 20
"""Larger files are no sources of kernels, and are left out."""
STALE_S = 24 * 3600.0
GIT_LIMIT_S = 120.0


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
    top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    prefix = _git(folder, "rev-parse", "--show-prefix").strip()
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
    shared = _git(top, "merge-base", "HEAD", branch, check=False).strip()
    if not shared:
        raise RevisionError(f"HEAD and {branch} share no commit that is in {top}", remedy=_deepen(top))
    return shared, f"merge-base with {branch}"


def _is_checked_out_merge(top: Path) -> bool:
    """Whether HEAD is what GitHub runs, and not another merge, as of the base into the pull request's branch."""
    return os.environ.get("GITHUB_SHA") == _commit(top, "HEAD") and _commit(top, "HEAD^2") is not None


def _commit(top: Path, name: str) -> str | None:
    found = _git(
        top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False
    )
    return found.strip() or None


def _deepen(top: Path) -> str:
    if _git(top, "rev-parse", "--is-shallow-repository", check=False).strip() == "true":
        return "the clone is shallow: fetch its history (git fetch --unshallow; actions/checkout with fetch-depth: 0)"
    return "name a commit that is there: --cgins-baseline=REV, or --baseline REV of cgins build"


def changes(revision: Revision, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What tracked files differ from a commit's; of some it is only that they may, by their times.

    Args:
        revision: the commit.
        paths: git's pathspecs, from the top of the repository.

    Returns:
        Pairs of git's letter (`A`, `D`, `M`, `T`) and a path from the top.

    Raises:
        RevisionError: git cannot tell.
    """
    words = ("diff-index", "--name-status", "--no-renames", "-z", revision.commit, "--", *paths)
    told = _git(revision.repository, *words).split("\0")
    return tuple(zip(told[0:-1:2], told[1::2], strict=True))


def untracked(revision: Revision, paths: Sequence[str]) -> tuple[str, ...]:
    """Files that git knows nothing of and is not told to ignore, by their paths from the top.

    Args:
        revision: of the repository that is meant.
        paths: git's pathspecs, from the top.

    Raises:
        RevisionError: git cannot tell.
    """
    words = ("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    return tuple(_git(revision.repository, *words).split("\0")[:-1])


def has_all(revision: Revision, paths: Sequence[str]) -> bool:
    """Whether a commit has all these files, given by their paths from the top.

    Raises:
        RevisionError: git cannot tell.
    """
    words = ("--literal-pathspecs", "ls-tree", "--name-only", "--full-tree", "-z", revision.commit, "--")
    return not paths or set(paths) <= set(_git(revision.repository, *words, *paths).split("\0"))


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
            raise RevisionError(
                f"{under}: {error.strerror}", remedy="make room, or set CGINS_CACHE_DIR"
            ) from error
        try:
            self._write()
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

    def _write(self) -> None:
        top, commit, tree = self.revision.repository, self.revision.commit, self.top
        tree.mkdir()
        index = {"GIT_INDEX_FILE": str(self._folder / "index")}
        _git(top, "read-tree", commit, extra=index)
        paths, submodules = [], []
        for mode, digest, nbytes, path in _listed(top, commit):
            if mode == "160000":
                submodules.append((digest, path))
            elif nbytes <= FILE_LIMIT_NBYTES if self._names is None else Path(path).name in self._names:
                paths.append(path)
        _git(
            top, "checkout-index", "-z", "--stdin", f"--prefix={tree}/", extra=index,
            text="".join(f"{path}\0" for path in paths),
        )  # fmt: skip
        for digest, path in submodules:
            # Its files are another repository's: those of the working tree do if they are the same commit.
            place, present = tree / path, top / path
            if (present / ".git").exists() and _commit(present, "HEAD") == digest:
                place.parent.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):
                    if place.is_dir():
                        place.rmdir()
                    place.symlink_to(present, target_is_directory=True)


def _listed(top: Path, commit: str) -> Iterator[tuple[str, str, int, str]]:
    """Mode, digest, bytes and path of each file and submodule of a commit."""
    for entry in _git(top, "ls-tree", "-r", "-l", "-z", "--full-tree", commit).split("\0"):
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


def _git(
    folder: Path, *words: str, check: bool = True, extra: dict[str, str] | None = None, text: str = ""
) -> str:
    """What a git command prints; "" for one that fails while `check` is off.

    Raises:
        RevisionError: it failed, or there is no git.
    """
    # Within a hook git names the index and the folder of the repository that it works for.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG_")
    }
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", **(extra or {})}
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, input=os.fsencode(text), timeout=GIT_LIMIT_S, check=False,
            env=environment,
        )  # fmt: skip
    except FileNotFoundError:
        raise RevisionError("git is not installed", remedy="install git, or compare with nothing") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RevisionError(f"git {words[0]}: {error}", remedy="run it by hand") from error
    if done.returncode == 0:
        return os.fsdecode(done.stdout)
    if not check:
        return ""
    said = os.fsdecode(done.stderr).strip().splitlines()
    if said and "not a git repository" in said[0]:
        raise RevisionError(
            f"{folder} is in no git repository",
            remedy="git init and commit once, or name none as the baseline",
        )
    raise RevisionError(
        f"git {words[0]} in {folder}: {said[0].removeprefix('fatal: ') if said else f'exit status {done.returncode}'}",
        remedy="run it by hand, or name none as the baseline",
    )
