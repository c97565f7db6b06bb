"""A project as a commit has it, in a folder of its own; nothing of the clone is touched."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from pytest_cgins.building.revision.merge_base import LFS_POINTER, LFS_POINTER_LIMIT_NBYTES
from pytest_cgins.config import Config, load
from pytest_cgins.core import git
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.regenerate.proposal.read import digest_of

_DEPTH = 12
"""Folders above the project, so that paths in `cgins.yaml` that lead out of it are told from absolute ones."""


def commit_of(top: Path, name: str) -> str:
    """The commit that a name means in a repository.

    Raises:
        ProposalError: git knows none.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    found = git.read(top, *words, check=False).strip()
    if not found:
        raise ProposalError(
            f'git knows no commit "{name}" in {top}', remedy="name an existing one, or fetch it first"
        )
    return found


def checkout(top: Path, commit: str, folder: Path) -> Path:
    """Write the files of a commit; what is below is a repository with the same history.

    Args:
        top: of the clone, whose objects are used where they lie. The commit need not be on a branch.
        commit: which.
        folder: an empty folder.

    Returns:
        Top of the files, somewhere below.

    Raises:
        RevisionError: git cannot read it.
    """
    place = Path(os.path.realpath(folder)).joinpath(*["d"] * _DEPTH, "project")
    place.mkdir(parents=True)
    kind = git.read(top, "rev-parse", "--show-object-format").strip()
    git.read(place, "init", "--quiet", "--template=", f"--object-format={kind}")
    # `git clone --shared` does not share the objects of a shallow clone, and brings none that are on no branch.
    objects = Path(os.path.realpath(top / git.read(top, "rev-parse", "--git-path", "objects").rstrip("\n")))
    alternates = place / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_text(f"{objects}\n", encoding="utf-8", errors="surrogateescape")
    git.read(place, "checkout", "--quiet", "--detach", commit)
    return place


def config_of(project: Path, path: str, top: Path) -> Config:
    """The `cgins.yaml` of such files; packs that are outside of git are those of the clone.

    Args:
        project: as `checkout` gave it.
        path: of the file, from the top.
        top: of the clone.

    Raises:
        ConfigError: it cannot be read.
    """
    found = load(project / path, require_traces=False, require_sources=False)
    return replace(found, traces=tuple(_pack(pack, project, top) for pack in found.traces))


def _pack(pack: Path, project: Path, top: Path) -> Path:
    place = Path(os.path.normpath(pack))
    if not place.is_relative_to(project):
        inside = place.is_relative_to(project.parents[_DEPTH])
        return Path(os.path.normpath(top / os.path.relpath(place, project))) if inside else place
    path = place.relative_to(project)
    words = ("--literal-pathspecs", "ls-files", "--cached", "-z", "--", str(path))
    tracked = set(git.read(top, *words).split("\0")[:-1])
    if not place.exists() and not tracked:
        return top / path
    for origin in sorted((top / path).rglob("*")):
        name = str(origin.relative_to(top))
        if origin.is_file() and (
            (name not in tracked and not os.path.lexists(project / name))
            or _points_to(project / name, origin)
        ):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, project / name)
    return place


def _points_to(file: Path, origin: Path) -> bool:
    """Whether a file stands for another that Git LFS keeps."""
    if not file.is_file() or file.stat().st_size > LFS_POINTER_LIMIT_NBYTES:
        return False
    found = LFS_POINTER.match(file.read_bytes())
    return found is not None and digest_of(origin.read_bytes()) == found[1].decode()
