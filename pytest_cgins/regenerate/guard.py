"""What no candidate may change: told by digests, before and after."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pytest_cgins.config import Config
from pytest_cgins.kernels.headers import file_digest
from pytest_cgins.methods import memory_file
from pytest_cgins.regenerate.model import Guarded

WHOLE_NBYTES = 16 << 20
"""Larger files, which only packs have, are told by their size and time: a pack's blobs are named by their content, which
is checked when they are read."""
SUFFIXES = frozenset({
    ".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".json", ".jsonl", ".txt", ".sh", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl",
    ".cu", ".c", ".cc", ".cpp", ".cxx", ".pt",
})  # fmt: skip
"""Files outside of packs that could move a goalpost: tests, configurations, other kernels and what they include."""


def guarded(config: Config, top: Path, own: Iterable[str], base_commit: str) -> Guarded:
    """Digests as they are now.

    Args:
        config: the project's file.
        top: its top folder.
        own: the kernel's own sources, relative to `top`, which may change.
        base_commit: the revision that times are compared with; "" for none.
    """
    free = set(own)
    files = {name: _digest(top / name) for name in sorted(set(_of_project(config, top))) if name not in free}
    for pack in config.traces:
        for place in sorted(pack.rglob("*")):
            if place.is_file():
                files[f"{pack.name}:{place.relative_to(pack)}"] = _digest(place)
    files["base revision"] = base_commit
    return Guarded(files=files)


def differences(before: Guarded, after: Guarded) -> tuple[str, ...]:
    """Names whose digests differ, or that are in one only."""
    names = sorted({*before.files, *after.files})
    return tuple(name for name in names if before.files.get(name) != after.files.get(name))


def digest(found: Guarded) -> str:
    """sha256 over all of it."""
    return _over(found.files)


def digest_of_sources(files: Mapping[str, str]) -> str:
    """sha256 over a candidate's paths and texts."""
    return _over(files)


def _over(parts: Mapping[str, str]) -> str:
    whole = hashlib.sha256()
    for name in sorted(parts):
        for part in (name, parts[name]):
            encoded = part.encode(errors="surrogateescape")
            whole.update(len(encoded).to_bytes(8, "big") + encoded)
    return whole.hexdigest()


def _of_project(config: Config, top: Path) -> Iterator[str]:
    """What git lists below the folder of cgins.yaml, and tests and settings above it; else what lies there."""
    root = Path(config.file).parent.resolve()
    packs = [pack.resolve() for pack in config.traces]
    # A search itself writes there what it learns, and nothing of it is asked when a candidate is judged.
    learned = root / memory_file.FOLDER / memory_file.NAME
    for name in _listed(top) or _walked(top, root):
        place = top / name
        if place == learned:
            continue
        inside = (
            place.is_relative_to(root) or place.suffix in (".toml", ".ini", ".cfg", ".yaml") or "test" in name
        )
        if inside and place.suffix in SUFFIXES and not any(place.is_relative_to(pack) for pack in packs):
            yield name


def _listed(top: Path) -> list[str]:
    command = ["git", "-C", str(top), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]


def _walked(top: Path, root: Path) -> list[str]:
    hidden = (place for place in root.rglob("*") if place.is_file())
    names = (str(place.relative_to(top)) for place in hidden)
    return [name for name in names if not any(part.startswith(".") for part in Path(name).parts)]


def _digest(file: Path) -> str:
    try:
        found = file.stat()
        if found.st_size > WHOLE_NBYTES:
            return f"{found.st_size} bytes of {found.st_mtime_ns}"
        return file_digest(str(file)) or ""
    except OSError:
        return ""
