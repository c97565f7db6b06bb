"""Where built kernels and tensors in flight are kept."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pytest_cgins.building.build import default_cache
from pytest_cgins.core.text import counted
from pytest_cgins.doctor import parse
from pytest_cgins.doctor.findings import Finding, State

STORAGE = "Storage"
LEAST_FREE_NBYTES = 1 << 30
COUNTED_FILES = 20_000


def build_cache() -> Finding:
    """The folder of built kernels: writable, how large, how much room is left."""
    folder = default_cache()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    trouble = ""
    try:
        # Made and removed again beside what is there: permission bits alone say little (root, read-only mounts).
        with tempfile.TemporaryDirectory(dir=existing, prefix=".cgins-doctor-"):
            pass
        free = shutil.disk_usage(existing).free
    except OSError as error:
        trouble, free = error.strerror or str(error), 0
    state: State = "unusable" if trouble or free < LEAST_FREE_NBYTES else "ok"
    held = _held(folder) if folder.exists() else "not made yet"
    return Finding(
        group=STORAGE,
        name="build cache",
        state=state,
        where=str(folder),
        detail=f"{existing}: {trouble}" if trouble else f"{held}, {parse.size(free)} free",
        disables="building kernels",
        remedy="set CGINS_CACHE_DIR to a writable folder with room",
    )


def _held(folder: Path) -> str:
    builds = nbytes = seen = 0
    for place, _, files in os.walk(folder):
        for file in files:
            seen += 1
            if seen > COUNTED_FILES:
                return f"more than {COUNTED_FILES:,} files"
            builds += file == "build.json"
            try:
                nbytes += (Path(place) / file).lstat().st_size
            except OSError:  # another process may be at work there
                continue
    return f"{counted(builds, 'build')}, {parse.size(nbytes)}"


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:  # noqa: S108 - looked at, not written to
    """Where processes share memory by a name."""
    try:
        total, _, free = shutil.disk_usage(folder)
    except OSError:
        total = free = 0
    small = total < LEAST_FREE_NBYTES
    return Finding(
        group=STORAGE,
        name="shared memory",
        state="missing" if not total else "unusable" if small else "ok",
        where=str(folder) if total else "",
        detail=f"{parse.size(free)} of {parse.size(total)} free" if total else "",
        disables="NCCL between several GPUs, and torch's data loaders",
        remedy="start the container with --shm-size=8g",
    )
