"""What a commit stores of a file, and what a checkout has of it, on which a proposal is made.

They differ by `.gitattributes` (ends of lines, encodings, `$Id$`), by a user's `core.autocrlf`, and where Git LFS keeps the
file. What the proposal was made on tells which of these it was.
"""

from __future__ import annotations

import hashlib

from pytest_cgins.building.revision.checkout import LFS_POINTER
from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.git import Git


def stored(git: Git, commit: str, path: str, content: bytes, made_on: str) -> bytes | None:
    """What is to be committed for new bytes of a file in a checkout.

    Args:
        git: of the clone.
        commit: the base.
        path: from the top of the repository.
        content: the new bytes.
        made_on: sha256 of the old ones; "" where there was no file.

    Returns:
        None if the file is not what the new bytes were made on.

    Raises:
        GitHubError: Git LFS keeps it, or git cannot convert it.
    """
    entry = git.entry(commit, path)
    if entry is None or not made_on:
        return None if entry is not None or made_on else git.checked_in(commit, path, content)
    old = git.read(entry[1])
    if digest(old) == made_on:
        return content
    if _kept_by_lfs(old, made_on):
        raise GitHubError(
            f'"{path}" is kept by Git LFS on the base branch, where no file is written',
            remedy="apply the proposal's patch.diff in a clone and push it, or take the file out of LFS: git lfs untrack",
        )
    if digest(git.checked_out(commit, path, entry[1])) == made_on:
        return git.checked_in(commit, path, content)
    if digest(old.replace(b"\n", b"\r\n")) == made_on and b"\r" not in old:
        return content.replace(b"\r\n", b"\n")
    return None


def has(git: Git, commit: str, path: str, content: bytes) -> bool:
    """Whether a checkout of a commit has such bytes of a file, or has them but for the ends of lines."""
    entry = git.entry(commit, path)
    if entry is None:
        return False
    now = git.read(entry[1])
    return (
        now in (content, content.replace(b"\r\n", b"\n"))
        or _kept_by_lfs(now, digest(content))
        or now == git.checked_in(commit, path, content)
    )


def digest(content: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(content).hexdigest()


def _kept_by_lfs(content: bytes, sha256: str) -> bool:
    found = LFS_POINTER.match(content)
    return found is not None and found[1].decode() == sha256
