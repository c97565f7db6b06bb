"""Built libraries on disk, found again by content.

    <cache>/manifests/<base>.json   builds of one base key: header hashes → key
    <cache>/<key[:2]>/<key>/        kernel.so and build.json, never changed once there
    <cache>/locks/, logs/, work/    locks a base key, logs of failed builds, builds under way

The base key covers everything that is known before compiling. The headers are known only afterwards, from
the compiler's depfiles, so a manifest lists them with their hashes for each build; a lookup hashes them
again (by content, never by time). A header that newly shadows another one is not noticed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.errors import InfrastructureError
from pytest_cgins.kernels.plan import LIBRARY

logger = logging.getLogger(__name__)
RECORD = "build.json"
QUIET_WAIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A library in the cache."""

    key: str
    """Build key: sha256 over the base key and the headers."""
    library: Path
    """Absolute path of the shared library."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A build cache in one folder, safe for many processes."""

    folder: Path
    """Absolute path; made when first written to."""

    def lookup(self, base: str, roots: Sequence[Path]) -> Entry | None:
        """The build of a base key whose headers are as they were, if it is whole."""
        hashes: dict[str, str | None] = {}
        for build in self._builds(base):
            for name in build["headers"]:
                if name not in hashes:
                    hashes[name] = file_digest(_resolve(name, roots))
            if all(hashes[name] == digest for name, digest in build["headers"].items()):
                entry = self._entry(build["key"])
                if entry is not None:
                    return entry
        return None

    def store(
        self,
        base: str,
        roots: Sequence[Path],
        *,
        headers: Sequence[Path],
        built: Path,
        record: dict[str, Any],
    ) -> Entry:
        """Move a finished build into place.

        Args:
            base: its base key; the caller holds its lock.
            roots: folders under which headers are remembered by relative path.
            headers: every header that was read.
            built: folder with `kernel.so`, on the cache's file system.
            record: what to keep in `build.json`.
        """
        digests = {_portable(header, roots): file_digest(header) or "" for header in headers}
        parts = [base, *sorted(f"{name}={digest}" for name, digest in digests.items())]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        record = {**record, "library_sha256": file_digest(built / LIBRARY)}
        kept = built / "entry"  # without object files
        kept.mkdir()
        (built / LIBRARY).rename(kept / LIBRARY)
        (kept / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        place = self._place(key)
        if self._entry(key) is None:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():  # corrupt: out of the way first, since a rename cannot replace a full folder
                place.rename(Path(tempfile.mkdtemp(dir=self.folder / "work")) / "corrupt")
            kept.rename(place)
        others = [build for build in self._builds(base) if build["key"] != key]
        self._write_manifest(base, [{"key": key, "headers": digests}, *others[:15]])
        return Entry(key=key, library=place / LIBRARY)

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A fresh folder on the cache's file system, removed afterwards."""
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self.folder / "work"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def lock(self, base: str, name: str, timeout_s: float) -> Iterator[None]:
        """Hold the lock of a base key: the operating system lets go of it when its holder dies.

        Raises:
            InfrastructureError: another process held it for `timeout_s`.
        """
        from filelock import FileLock, Timeout

        path = self.folder / "locks" / f"{base}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=min(QUIET_WAIT_S, timeout_s))
        except Timeout:
            logger.warning("%s: waiting for another process that builds it (%s)", name, path)
            try:
                lock.acquire(timeout=max(0.0, timeout_s - QUIET_WAIT_S))
            except Timeout:
                raise InfrastructureError(
                    f"{name}: another process has been building it for more than {timeout_s:g} s ({path})",
                    remedy="end that process, or wait for it and run again",
                ) from None
        try:
            yield
        finally:
            lock.release()

    def keep_log(self, base: str, text: str) -> Path:
        """Keep the log of a failed build, and say where."""
        path = self.folder / "logs" / f"{base[:16]}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _entry(self, key: str) -> Entry | None:
        library = self._place(key) / LIBRARY
        try:
            record = json.loads((library.parent / RECORD).read_bytes())
            whole = record["library_sha256"] == file_digest(library) is not None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Entry(key=key, library=library) if whole else None

    def _builds(self, base: str) -> list[dict[str, Any]]:
        """Builds of a base key, newest first; [] where the manifest is missing or damaged."""
        try:
            builds = json.loads((self.folder / "manifests" / f"{base}.json").read_bytes())
            return [
                {"key": str(build["key"]), "headers": {str(k): str(v) for k, v in build["headers"].items()}}
                for build in builds
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def _write_manifest(self, base: str, builds: list[dict[str, Any]]) -> None:
        path = self.folder / "manifests" / f"{base}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(builds), encoding="utf-8")
        draft.replace(path)


def file_digest(path: Path) -> str | None:
    """sha256 of a file's bytes, None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _portable(header: Path, roots: Sequence[Path]) -> str:
    """`<root's index>:<rest>` for a header under a root, as the compiler spelled it; else its path."""
    for index, root in enumerate(roots):
        prefix = f"{root}{os.sep}"
        if str(header).startswith(prefix):
            return f"{index}:{str(header)[len(prefix) :]}"
    return str(header)


def _resolve(name: str, roots: Sequence[Path]) -> Path:
    index, colon, rest = name.partition(":")
    if colon and index.isdigit() and int(index) < len(roots):
        return roots[int(index)] / rest
    return Path(name)
