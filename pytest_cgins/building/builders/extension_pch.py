"""The precompiled header of C++ extensions: made once a machine, kept beside the built kernels.

    <cache>/torch/<key>/<compiler's digest>/…   the lean headers that depend on torch alone, and their .gch
    <cache>/torch/<key>.uses                    how many builds have wanted it

It has 200 MB and takes as long as three builds without it, so it is made by the third build that wants it. It
counts as a build of the cache, and goes as one: see `cache_space`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_cgins.building.cache import space
from pytest_cgins.building.compilers.process import run_stages, write_files
from pytest_cgins.core import locks
from pytest_cgins.core.console import size_of

logger = logging.getLogger(__name__)
USES_BEFORE = 2


def folder_for(
    store: Path,
    compiler: Sequence[str],
    flags: Sequence[str],
    header: str,
    *,
    files: Mapping[str, str],
    identity: str,
    deadline: float,
) -> Path | None:
    """The folder with a precompiled header that fits a compile command; None where there is none yet.

    Args:
        store: folder of all precompiled headers.
        compiler: of the sources that will include it.
        flags: of these sources, without those that differ by source.
        header: the header's name among `files`.
        files: the headers that lie in the folder, by name.
        identity: what decides the headers that these include: torch's and the compiler's versions.
        deadline: time of `time.monotonic()` at which making it is given up.
    """
    parts = [
        identity,
        *compiler,
        "-isystem",
        *flags,
        *(f"{name}\0{text}" for name, text in sorted(files.items())),
    ]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    path = store / key
    if _usable(path, header):
        return path
    try:
        if _uses(store / f"{key}.uses") <= USES_BEFORE:
            return None
        limit_s = max(0.0, deadline - time.monotonic())
        with locks.holding(store / f"{key}.lock", limit_s, "a precompiled header") as is_held:
            if is_held and not _usable(path, header) and not _refused(path, header):
                _make(path, compiler, flags, header, files=files, deadline=deadline)
    except OSError as error:
        logger.info("no precompiled header: %s", error)
    return path if _usable(path, header) else None


def _make(
    path: Path,
    compiler: Sequence[str],
    flags: Sequence[str],
    header: str,
    *,
    files: Mapping[str, str],
    deadline: float,
) -> None:
    """Make the folder, whole or not at all. A refusal is remembered by a folder without it: it would come again."""
    for left in [path, *path.parent.glob(f"{path.name}.*/")]:  # damaged, or its maker was killed
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    made = draft / f"{header}.gch"
    try:
        write_files(draft, files)
        # Its own headers come before others of their names, as they do where it is included.
        own = f"-isystem{draft}"
        compile_it = [*compiler, own, *flags, "-x", "c++-header", header, "-o", f"{header}.gch"]
        outcome = run_stages([[compile_it]], draft, "precompiled header", deadline)
        if outcome.status != 0:
            logger.info("no precompiled header: %s", outcome.log[-1000:])
            made.unlink(missing_ok=True)
        else:
            _size_of(draft).write_text(str(made.stat().st_size), encoding="ascii")
        if outcome.status is not None:
            draft.rename(path)
            space.added(path.parents[1], size_of(path))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _size_of(path: Path) -> Path:
    """The file with the size that the precompiled header had when it was made."""
    return path / "nbytes"


def _usable(path: Path, header: str) -> bool:
    with suppress(OSError, ValueError):
        os.utime(path)  # the time of its last use
        wanted = int(_size_of(path).read_text(encoding="ascii"))
        return (path / f"{header}.gch").stat().st_size == wanted
    return False


def _refused(path: Path, header: str) -> bool:
    """Whether the compiler would not make it."""
    return (path / header).is_file() and not _size_of(path).exists() and not (path / f"{header}.gch").exists()


def _uses(file: Path) -> int:
    """Count one more use. Two processes at once may count as one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as counted:
        counted.write(b".")
        return counted.tell()
