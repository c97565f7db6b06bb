"""What lies in and beside a pack that nothing refers to."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.core.console import size_of
from pytest_cgins.core.errors import PackError
from pytest_cgins.packs.store import BLOBS, PROFILES, PackReader, blobs_of, open_pack
from pytest_cgins.recording import profile

SETTLED_SECONDS = 3600.0
"""What has not been written to for so long was left by a recording that is no longer running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A file or folder that nothing refers to."""

    path: Path
    why: str
    nbytes: int
    """Its size, with all that is in it."""


def garbage(folder: Path) -> list[Garbage]:
    """All that nothing refers to: unused blobs, profiles of other traces, leftovers of killed recordings.

    Folders of recordings that may still run, those written to within the last hour, are not among it.

    Raises:
        PackError: if the pack itself is damaged: then nothing is known to be of no use.
    """
    # A trailing slash or `.` must not hide the folder's own name.
    folder = folder.absolute()
    reader = open_pack(folder)
    return [*_blobs(reader), *_profiles(reader), *_leftovers(folder)]


def remove(found: Garbage) -> None:
    """Remove it; links are removed, not followed."""
    if found.path.is_dir() and not found.path.is_symlink():
        shutil.rmtree(found.path)
    else:
        found.path.unlink()


def _blobs(reader: PackReader) -> Iterator[Garbage]:
    used = {f"{blob.sha256}.safetensors" for blob in blobs_of(reader.pack)}
    place = reader.folder / BLOBS
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if path.name not in used:
            yield _found(path, "a blob that no trace refers to")


def _profiles(reader: PackReader) -> Iterator[Garbage]:
    known = {trace.id for trace in reader.pack.traces}
    for file in profile.files_of(reader.folder):
        try:
            measured = profile.parse(file)
        except PackError:
            # It may be of a later version: to say so is the business of those who read it.
            continue
        if any(one.trace not in known for one in measured.traces):
            yield _found(file, "a profile of other traces")
    for path in sorted((reader.folder / PROFILES).glob(".*.tmp")):
        if _is_settled(path):
            yield _found(path, "left by a cgins profile that was killed")


def _leftovers(folder: Path) -> Iterator[Garbage]:
    # As PackWriter names what it writes, and what it replaces.
    name = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    for path in sorted(folder.parent.iterdir()):
        if name.fullmatch(path.name) and path.is_dir() and _is_settled(path):
            yield _found(path, "left by a recording that was killed")


def _found(path: Path, why: str) -> Garbage:
    followed = path.is_dir() and not path.is_symlink()
    return Garbage(path=path, why=why, nbytes=size_of(path) if followed else path.lstat().st_size)


def _is_settled(path: Path) -> bool:
    """Whether nothing in it was written lately."""
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return time.time() - max(file.lstat().st_mtime for file in files) > SETTLED_SECONDS
