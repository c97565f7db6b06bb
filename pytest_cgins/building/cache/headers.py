"""Headers that a build has read: remembered by portable names and content, and checked again cheaply.

A name is `<root's index>:<rest>` for a header below one of the roots of a build (folders of its sources and of
`-I`), `cuda:<rest>` or `python:<rest>` below the CUDA toolkit or the Python environment, else its absolute
path. So a cache that moves with its project, or to a machine with the same toolkit elsewhere, is found again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_cgins.building.compilers import toolchain

RACY_S = 2.0
"""A file younger than this may change again without a new time."""


def file_digest(path: Path | str) -> str | None:
    """sha256 of a file's bytes, None if it cannot be read, or is a device or a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - hundreds of files a lookup
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def portable(files: Sequence[Path], roots: Sequence[Path]) -> list[str]:
    """The names by which headers are remembered, as the compiler spelled them below the innermost root."""
    folders = [(f"{folder}{os.sep}", label) for label, folder in _labelled(roots).items()]
    folders.sort(key=lambda folder: -len(folder[0]))  # stable: of equal ones the first root
    names = []
    for file in files:
        text = str(file)
        found = next(((folder, label) for folder, label in folders if text.startswith(folder)), None)
        names.append(f"{found[1]}:{text[len(found[0]) :]}" if found else text)
    return names


def _labelled(roots: Sequence[Path]) -> dict[str, str]:
    own = {str(index): str(root) for index, root in enumerate(roots)}
    return {**own, **{label: str(folder) for label, folder in toolchain.homes().items()}}


def _by_path(digests: Mapping[str, str], roots: Sequence[Path]) -> dict[str, str]:
    """Content hashes by path instead of by name."""
    folders = _labelled(roots)
    found = {}
    for name, digest in digests.items():
        label, colon, rest = name.partition(":")
        found[f"{folders[label]}{os.sep}{rest}" if colon and label in folders else name] = digest
    return found


def differ(digests: Mapping[str, str], roots: Sequence[Path], signature: str) -> tuple[bool, str]:
    """Whether headers are not as they were.

    Args:
        digests: content hashes by name.
        roots: of this lookup.
        signature: what an earlier call on this machine gave for these digests; "" for none. Files with the same
            sizes, inodes and times need not be read again.

    Returns:
        Whether any differs, and the signature to remember: "" if it must not be remembered yet.
    """
    paths = _by_path(digests, roots)
    now = _signature(paths)
    if now and now == signature:
        return False, now
    return any(file_digest(path) != digest for path, digest in paths.items()), now


def changed(digests: Mapping[str, str], roots: Sequence[Path]) -> list[str]:
    """Paths of those headers that are not as they were; all are read."""
    return [path for path, digest in _by_path(digests, roots).items() if file_digest(path) != digest]


def _signature(paths: Mapping[str, str]) -> str:
    """Sizes, inodes and times of files, hashed; "" if one is missing or so young that it may change unseen."""
    whole = hashlib.sha256()
    newest = 0
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116 - hundreds of files a lookup
        except OSError:
            return ""
        newest = max(newest, found.st_mtime_ns, found.st_ctime_ns)
        numbers = (found.st_size, found.st_ino, found.st_dev, found.st_mtime_ns, found.st_ctime_ns)
        whole.update(f"{path}\0{numbers}\0".encode(errors="surrogateescape"))
    return whole.hexdigest() if newest < time.time_ns() - RACY_S * 1e9 else ""


def shadows(names: Sequence[str], roots: Sequence[Path]) -> list[str]:
    """Files in the user's folders that an `#include` of one of these headers may find.

    A change of this list means that another file may now be found first. Tests by `__has_include` for headers
    that no build has read are not seen.
    """
    text = "".join(f"/{name.partition(':')[2] or name}\n" for name in names)
    places = {str(root): str(index) for index, root in enumerate(roots)}
    for name in names:
        label, colon, rest = name.partition(":")
        if colon and label.isdigit() and int(label) < len(roots) and os.sep in rest:
            folder = rest.rpartition(os.sep)[0]
            places.setdefault(f"{roots[int(label)]}{os.sep}{folder}", f"{label}:{folder}")
    return sorted(f"{label} {found}" for place, label in places.items() for found in _found(place, "", text))


def _found(place: str, below: str, text: str) -> Iterator[str]:
    try:
        with os.scandir(f"{place}{os.sep}{below}" if below else place) as entries:
            listed = list(entries)
    except OSError:
        return
    for entry in listed:
        name = f"{below}{os.sep}{entry.name}" if below else entry.name
        if f"/{name}\n" in text and entry.is_file():
            yield name
        elif f"/{name}/" in text and entry.is_dir():
            yield from _found(place, name, text)
