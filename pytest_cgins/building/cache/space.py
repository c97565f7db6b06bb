"""How much the build cache holds, and what goes first: the builds whose last use is longest ago."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pytest_cgins.building.cache.holds import try_exclusive
from pytest_cgins.building.cache.store import RECORD
from pytest_cgins.core import scratch
from pytest_cgins.core.console import size_of
from pytest_cgins.core.errors import ConfigError

logger = logging.getLogger(__name__)
DEFAULT_NBYTES = 5 << 30
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
KEPT_SHARE = 0.8
"""An automatic eviction goes this far below the limit, so that not every build needs one."""
LEFTOVER_S = 3600.0
PRECOMPILED = "torch"
"""Folder of `extension_pch` in the cache."""
JIT = "jit"
"""Folder of Triton's and the CuTe DSL's own caches in the cache: a folder a kernel."""
COUNTED_ADDITIONS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A build on disk."""

    key: str
    """Build key."""
    name: str
    """`kernel/implementation` that it was built for first; "?" if its record cannot be read."""
    device: str
    """Device type that it runs on."""
    contract: str
    """How it is called."""
    archs: tuple[str, ...]
    """CUDA architectures that it was built for."""
    refused: bool
    """Whether it is a compiler's refusal."""
    nbytes: int
    """Size of its files on disk."""
    built_at: float
    """Unix time at which it was built."""
    used_at: float
    """Unix time of its last use, to the hour."""
    build_seconds: float
    """Wall time that its build took."""
    folder: Path
    """Where it lies."""


def limit_nbytes() -> int:
    """Most that the cache may hold: `$CGINS_CACHE_SIZE`, else 5 GiB.

    Raises:
        ConfigError: the variable is no size.
    """
    named = named_size("CGINS_CACHE_SIZE")
    return DEFAULT_NBYTES if named is None else named


def named_size(variable: str) -> int | None:
    """Bytes that an environment variable names; None if it is not set.

    Raises:
        ConfigError: it is no size.
    """
    named = os.environ.get(variable, "").strip()
    try:
        return parse_size(named) if named else None
    except ValueError as error:
        raise ConfigError(
            f"{variable}: {error}", remedy="write bytes, or a number with a unit: 500MB, 8GiB"
        ) from None


def parse_size(text: str) -> int:
    """Bytes of `5GiB`, `500 MB` or `1000`.

    Raises:
        ValueError: it is no size.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kKMGT]?i?)B?", text.strip())
    if found is None or found[2].upper() not in UNITS:
        raise ValueError(f'"{text}" is not a size')
    return int(Decimal(found[1]) * UNITS[found[2].upper()])


def stored(folder: Path) -> list[Stored]:
    """All builds in a cache, the last used first."""
    found = [_read(path) for path in folder.glob("[0-9a-f][0-9a-f]/*")]
    precompiled = (path for path in (folder / PRECOMPILED).glob("*/") if "." not in path.name)
    found += (_read_folder(path, "torch's headers, precompiled", "torch-extension") for path in precompiled)
    compiled = (path for path in (folder / JIT).glob("*/") if "." not in path.name)
    found += (_read_folder(path, "a JIT compiler's", "python") for path in compiled)
    return sorted(filter(None, found), key=lambda entry: (-entry.used_at, entry.key))


def _read(path: Path) -> Stored | None:
    try:
        nbytes = sum(file.lstat().st_size for file in path.iterdir())
        used_at = path.stat().st_mtime
    except OSError:  # evicted meanwhile
        return None
    record: dict[str, object] = {}
    with suppress(OSError, ValueError):
        used_at = (path / RECORD).stat().st_mtime
        loaded = json.loads((path / RECORD).read_bytes())
        record = loaded if isinstance(loaded, dict) else {}
    archs = record.get("archs")
    built_at, seconds = record.get("built_at"), record.get("seconds")
    return Stored(
        key=path.name,
        name=f"{record['kernel']}/{record.get('implementation')}" if "kernel" in record else "?",
        device=str(record.get("device", "?")),
        contract=str(record.get("contract", "?")),
        archs=tuple(str(arch) for arch in archs) if isinstance(archs, list) else (),
        refused=bool(record.get("status", 0)),
        nbytes=nbytes,
        built_at=float(built_at) if isinstance(built_at, int | float) else used_at,
        used_at=used_at,
        build_seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        folder=path,
    )


def _read_folder(path: Path, name: str, contract: str) -> Stored | None:
    """A folder that somebody else has filled, as a build."""
    try:
        nbytes, used_at = size_of(path), path.stat().st_mtime
    except OSError:
        return None
    return Stored(
        key=path.name, name=name, device="cpu" if contract != "python" else "cuda", contract=contract,
        archs=(), refused=False, nbytes=nbytes, built_at=used_at, used_at=used_at, build_seconds=0.0, folder=path,
    )  # fmt: skip


def prune(
    folder: Path,
    *,
    max_nbytes: int | None = None,
    older_than_s: float | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> list[Stored]:
    """Remove builds, those first whose last use is longest ago, and what killed builders have left.

    What a living process was given is kept.

    Args:
        folder: the cache.
        max_nbytes: remove until the rest is no larger.
        older_than_s: remove what was not used for so long.
        everything: remove all.
        dry_run: only say what would go.

    Returns:
        What was removed.
    """
    kept = stored(folder)
    left = sum(entry.nbytes for entry in kept)
    now = time.time()
    removed = []
    for entry in reversed(kept):
        too_old = older_than_s is not None and now - entry.used_at > older_than_s
        too_much = max_nbytes is not None and left > max_nbytes
        if (everything or too_old or too_much) and (dry_run or _remove(folder, entry)):
            removed.append(entry)
            left -= entry.nbytes
    if not dry_run:
        _sweep(folder, everything=everything)
        with suppress(OSError):
            (folder / "size").write_text(f"{left}\n", encoding="ascii")
    return removed


def added(folder: Path, nbytes: int) -> None:
    """Count a new build, and evict old ones where the limit is passed.

    The count is kept in a file of sums, so that the folder is walked only where it matters.

    Raises:
        ConfigError: `$CGINS_CACHE_SIZE` is no size.
    """
    limit = limit_nbytes()
    counted = folder / "size"
    try:
        with counted.open("a+", encoding="ascii") as file:
            file.write(f"{nbytes}\n")
            file.flush()
            file.seek(0)
            parts = [int(line) for line in file.read().split()]
    except (OSError, ValueError):
        parts = []
    if parts and sum(parts) <= limit and len(parts) < COUNTED_ADDITIONS:
        return
    walked = sum(entry.nbytes for entry in stored(folder))
    gone = prune(folder, max_nbytes=int(limit * KEPT_SHARE) if walked > limit else limit)
    if gone:
        logger.info("build cache %s: %d builds evicted", folder, len(gone))


def _remove(folder: Path, entry: Stored) -> bool:
    """Move an entry out of the way and remove it, unless a living process holds it."""
    record = entry.folder / RECORD
    held = try_exclusive(record)
    if held is None and record.exists():
        return False
    try:
        (folder / "work").mkdir(exist_ok=True)
        grave = Path(tempfile.mkdtemp(dir=folder / "work"))
        entry.folder.rename(grave / "entry")
        shutil.rmtree(grave, ignore_errors=True)
        with suppress(OSError):
            entry.folder.parent.rmdir()
    except OSError:
        return False
    finally:
        if held is not None:
            os.close(held)
    return True


def _sweep(folder: Path, *, everything: bool) -> None:
    """Remove what serves no build any more: manifests of evicted ones, old logs and locks, dead work."""
    scratch.sweep(folder / "work")
    now = time.time()
    for manifest in (folder / "manifests").glob("*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError):
            builds = json.loads(manifest.read_bytes())
            if not any((folder / build["key"][:2] / build["key"]).exists() for build in builds):
                manifest.with_suffix(".stat").unlink(missing_ok=True)
                manifest.unlink()
    for draft in (folder / PRECOMPILED).glob("*.*/"):
        with suppress(OSError):
            if draft.is_dir() and now - draft.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(draft, ignore_errors=True)
    patterns = ("logs/*", "locks/*", f"{PRECOMPILED}/*.uses", f"{PRECOMPILED}/*.lock")
    drafts = ("manifests/.*", "durations/.*")  # of killed writers
    for file in [file for pattern in (*patterns, *drafts) for file in folder.glob(pattern)]:
        with suppress(OSError):
            if (everything or now - file.stat().st_mtime > LEFTOVER_S * 24) and _free(file):
                file.unlink()


def _free(file: Path) -> bool:
    """Whether no process holds a lock on a file."""
    descriptor = try_exclusive(file)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True
