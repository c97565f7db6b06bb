"""Built kernels on disk, found again by content.

    <cache>/manifests/<base>.json   builds of one base key: header hashes → key
    <cache>/<key[:2]>/<key>/        artifact and build.json, never changed once there
    <cache>/manifests/<base>.stat   how these headers looked when they were last read on this machine
    <cache>/durations/              how long each implementation last took; outlives its builds
    <cache>/locks/, logs/, work/    locks a base key, logs of failed builds, builds under way
    <cache>/slots/<host>/, size     see `slots` and `cache_space`

The base key covers everything that is known before compiling. The headers are known only afterwards, from
the compiler's depfiles, so a manifest lists them with their hashes for each build, and what else in the user's
folders has their names. A compiler's refusal is kept like a build, without an artifact. The time of
`build.json` is that of the last use. A process holds a shared lock on what it was given until it ends, so
that nothing is evicted between lookup and load.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.building.cache import headers, holds
from pytest_cgins.core import atomic, locks, scratch
from pytest_cgins.core.errors import InfrastructureError, LockedError

RECORD = "build.json"
BUILDS_A_BASE = 16


def default_cache() -> Path:
    """Folder of built kernels: `$CGINS_CACHE_DIR/builds`, else the user's cache folder."""
    return atomic.cache_folder("builds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A build in the cache, or a compiler's refusal."""

    key: str
    """Build key: sha256 over the base key and the headers."""
    artifact: Path | None
    """Absolute path of the shared library or cubin; None for a refusal."""
    sha256: str
    """Of the artifact; "" for a refusal."""
    status: int
    """Exit status of the compilation: 0 for a build."""
    command: str
    """The commands that made it."""
    log: str
    """What the compilers printed, with the paths of this lookup's sources."""
    seconds: float
    """Wall time that the build took."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A build cache in one folder, safe for many processes and threads."""

    folder: Path
    """Absolute path; made when first written to."""

    def lookup(self, base: str, roots: Sequence[Path]) -> Entry | None:
        """The build of a base key whose headers are as they were, if it is whole.

        Args:
            base: the base key.
            roots: folders under which headers are remembered by relative path.
        """
        remembered = self._signatures(base)
        shadows: dict[tuple[str, ...], list[str]] = {}
        for build in self._builds(base):
            names = tuple(build["headers"])
            if names not in shadows:
                shadows[names] = headers.shadows(names, roots)
            if shadows[names] != build["shadows"]:
                continue
            signature = remembered.get(build["key"], "")
            differs, now = headers.differ(build["headers"], roots, signature)
            entry = None if differs else self._entry(build["key"], roots)
            if entry is not None:
                if now and now != signature:
                    self._remember(base, {**remembered, build["key"]: now})
                return entry
        return None

    def store(
        self,
        base: str,
        roots: Sequence[Path],
        *,
        read: Sequence[Path],
        built: Path,
        artifact: str,
        record: Mapping[str, Any],
    ) -> Entry:
        """Move a finished build into place.

        Args:
            base: its base key; the caller holds its lock.
            roots: folders under which headers are remembered by relative path.
            read: every header that was read.
            built: folder of the build, on the cache's file system.
            artifact: name of the file in it to keep; "" for a refusal.
            record: `status`, `command`, `log`, `seconds`, and what else to keep in `build.json`.

        Raises:
            OSError: the disk does not take it.
        """
        names = headers.portable(read, roots)
        digests = {name: headers.file_digest(file) or "" for name, file in zip(names, read, strict=True)}
        parts = [base, *sorted(f"{name}={digest}" for name, digest in digests.items())]
        key = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
        kept = built / "entry"  # without object files
        kept.mkdir()
        if artifact:
            (built / artifact).rename(kept / artifact)
        content = {
            **record,
            "key": key,
            "base": base,
            "log": _without_roots(record["log"], roots),
            "artifact": artifact,
            "artifact_sha256": headers.file_digest(kept / artifact) if artifact else None,
            "built_at": time.time(),
        }
        (kept / RECORD).write_text(
            json.dumps({**content, "sha256": _digest(content)}, indent=1), encoding="utf-8"
        )
        place = self.folder_of(key)
        entry = self._entry(key, roots)
        if entry is None:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():  # corrupt: out of the way first, since a rename cannot replace a full folder
                place.rename(built / "corrupt")
            try:
                kept.rename(place)
            except OSError:
                if not place.exists():  # else another builder was faster, where there are no locks
                    raise
            entry = self._entry(key, roots)
        if entry is None:
            raise InfrastructureError(
                f"{place}: what was just written there reads differently",
                remedy="check the disk, or set CGINS_CACHE_DIR to a folder on another one",
            )
        others = [build for build in self._builds(base) if build["key"] != key]
        shadows = headers.shadows(tuple(digests), roots)
        builds = [{"key": key, "headers": digests, "shadows": shadows}, *others[: BUILDS_A_BASE - 1]]
        atomic.write_text(self.folder / "manifests" / f"{base}.json", json.dumps(builds))
        return entry

    def changed_headers(self, base: str, key: str, roots: Sequence[Path]) -> list[str]:
        """Headers that a build has read and that are others now, by path; [] for an unknown build.

        Args:
            base: the build's base key.
            key: the build's key.
            roots: as for `lookup`.
        """
        found = next((build for build in self._builds(base) if build["key"] == key), None)
        return headers.changed(found["headers"], roots) if found else []

    def usable(self) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made or written to.
        """
        for name in ("work", "locks", "manifests"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # It has no name that a killed builder could leave.
        with tempfile.TemporaryFile(dir=self.folder / "work"):
            pass

    def work_folder(self) -> AbstractContextManager[Path]:
        """A fresh folder on the cache's file system, removed afterwards, as is what killed builders left."""
        return scratch.folder(self.folder / "work")

    @contextmanager
    def lock(self, base: str, name: str, timeout_s: float) -> Iterator[None]:
        """Hold the lock of a base key: the operating system lets go of it when its holder dies.

        Raises:
            LockedError: another process held it for `timeout_s`.
        """
        path = self.folder / "locks" / f"{base}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with locks.holding(path, timeout_s, f"the build of {name}") as is_held:
            if not is_held:
                raise LockedError(
                    f"{name}: another process has been building it for more than {timeout_s:g} s ({path})",
                    remedy="end that process, or wait for it and run again",
                )
            yield

    def keep_log(self, base: str, text: str) -> Path:
        """Keep the log of a failed build, and say where: in a read-only cache, in the temporary folder."""
        name = f"{base[:16]}.log"
        path = self.folder / "logs" / name
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == text:
                return path
        try:
            atomic.write_text(path, text)
        except OSError:
            path = Path(tempfile.mkdtemp(prefix="cgins-")) / name
            path.write_text(text, encoding="utf-8")
        return path

    def last_seconds(self, name: str) -> float | None:
        """Wall time of the last build of an implementation; None if there was none.

        Args:
            name: `kernel/implementation`.
        """
        try:
            return float(self._duration(name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def keep_seconds(self, name: str, seconds: float) -> None:
        """Keep the wall time of a build, if the disk takes it."""
        with suppress(OSError):
            atomic.write_text(self._duration(name), f"{seconds:.4f}")

    def _duration(self, name: str) -> Path:
        return self.folder / "durations" / hashlib.sha256(name.encode()).hexdigest()[:24]

    def folder_of(self, key: str) -> Path:
        """Where an entry lies."""
        return self.folder / key[:2] / key

    def _entry(self, key: str, roots: Sequence[Path]) -> Entry | None:
        """An entry that is whole, and that this process holds from now on."""
        place = self.folder_of(key)
        text = holds.hold(place / RECORD)
        if text is None:
            return None
        try:
            record = json.loads(text)
            whole = record.pop("sha256") == _digest(record) and record["key"] == key
            artifact = place / Path(record["artifact"]).name if record["artifact"] else None
            if artifact is not None:
                whole = whole and record["artifact_sha256"] == headers.file_digest(artifact)
            if not whole:
                return None
            return Entry(
                key=key,
                artifact=artifact,
                sha256=str(record["artifact_sha256"]) if artifact else "",
                status=int(record["status"]),
                command=str(record["command"]),
                log=_with_roots(str(record["log"]), roots),
                seconds=float(record["seconds"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _builds(self, base: str) -> list[dict[str, Any]]:
        """Builds of a base key, newest first; [] where the manifest is missing or damaged."""
        try:
            builds = json.loads((self.folder / "manifests" / f"{base}.json").read_bytes())
            return [
                {
                    "key": str(build["key"]),
                    "headers": {str(k): str(v) for k, v in build["headers"].items()},
                    "shadows": [str(shadow) for shadow in build["shadows"]],
                }
                for build in builds
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def _signatures(self, base: str) -> dict[str, str]:
        try:
            found = json.loads((self.folder / "manifests" / f"{base}.stat").read_bytes())
            return {str(key): str(signature) for key, signature in found.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _remember(self, base: str, signatures: Mapping[str, str]) -> None:
        with suppress(OSError):  # a cache may be read-only
            kept = dict(list(signatures.items())[-BUILDS_A_BASE:])
            atomic.write_text(self.folder / "manifests" / f"{base}.stat", json.dumps(kept))


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _without_roots(text: str, roots: Sequence[Path]) -> str:
    """A log in which folders are named by the number of their root, so that it may be read elsewhere."""
    for root, index in sorted(((str(root), i) for i, root in enumerate(roots)), key=lambda r: -len(r[0])):
        text = text.replace(f"{root}{os.sep}", f"\x00{index}\x00")
    return text


def _with_roots(text: str, roots: Sequence[Path]) -> str:
    for index, root in enumerate(roots):
        text = text.replace(f"\x00{index}\x00", f"{root}{os.sep}")
    return text
