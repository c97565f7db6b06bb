"""Verdicts of earlier runs, a line each, in files that are written once: in a folder, or where an address leads.

Only `PASSED` is kept, without times, under the key of `verdict_keys`. A line that was torn or altered, is too old, or has a
date to come is not taken.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pytest_cgins.core import documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import VerdictStoreError
from pytest_cgins.core.session_report import Evaluation, Provenance
from pytest_cgins.core.verdict import Correctness, Status
from pytest_cgins.gate import correctness_verdict

SUFFIX = ".verdicts"
_STAMP = "%Y%m%dT%H%M%SZ"
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{64}) (\{.*\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict(Document):
    """What is kept of a case: by what was checked, today's rules decide again."""

    provenance: Provenance
    """When, where and of what."""
    correctness: Correctness
    """All that was checked."""


def line_of(evaluation: Evaluation, *, writer: str, revision: str) -> str:
    """The line of a case that was found right in this run, with its end; "" for others, and without a key."""
    tested, correctness = evaluation.tested, evaluation.correctness
    new = evaluation.verdict.status is Status.PASSED and evaluation.stored is None
    if not new or tested is None or not tested.key or correctness is None:
        return ""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    provenance = Provenance(
        key=tested.key, verified_at=now, writer=writer, revision=revision, environment=tested.environment
    )
    kept = StoredVerdict(provenance=provenance, correctness=correctness)
    text = f"{tested.key} {documents.dump(kept)}"
    return f"{_digest(text)} {text}\n"


class KnownVerdicts:
    """The verdicts that a run may take over.

    Args:
        texts: of files, later ones over earlier ones.
        days: age from which they are too old.
        seed: that the run was given, of which keys then have it; None for one of its own.
    """

    def __init__(self, texts: Iterable[str], *, days: float, seed: int | None = None) -> None:
        self.seed = seed
        self._limit = timedelta(days=days)
        self._lines: dict[str, str] = {}
        for line in (line for text in texts for line in text.split("\n")):
            found = _LINE.fullmatch(line)
            if found is not None and found[1] == _digest(line.partition(" ")[2]):
                self._lines[found[2]] = found[3]

    @property
    def any(self) -> bool:
        """Whether there is anything to take over."""
        return bool(self._lines)

    def find(self, key: str, *, now: datetime | None = None) -> StoredVerdict | None:
        """What is known under a key; None if that is nothing, too old, or no longer passes."""
        try:
            found = documents.load(StoredVerdict, self._lines[key])
            age = (now or datetime.now(timezone.utc)) - datetime.fromisoformat(found.provenance.verified_at)
        except (KeyError, ValueError, TypeError):
            return None
        passes = correctness_verdict.decide(found.correctness, None).status is Status.PASSED
        return found if passes and timedelta(0) <= age <= self._limit else None


class VerdictStore:
    """Files of verdicts in one place.

    Args:
        address: a folder, or what fsspec knows: `s3://BUCKET/FOLDER`.

    Raises:
        VerdictStoreError: nothing that is installed reads such an address; so do the methods, where it cannot be used.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        with self._told("opened"):
            import fsspec

            self._files, self._folder = fsspec.url_to_fs(address)

    def read(self) -> dict[str, str]:
        """Texts of all files by name, oldest first; {} where there is no such folder yet."""
        with self._told("read"):
            return {name: self._files.cat_file(name).decode(errors="replace") for name in self._names()}

    def write(self, lines: Iterable[str], *, days: float) -> None:
        """Add a file if there is a line, and remove those of which each line is too old."""
        text = "".join(lines)
        with self._told("written"):
            if text:
                self._files.makedirs(self._folder, exist_ok=True)
                self._files.pipe_file(f"{self._folder}/{new_name()}", text.encode())
            oldest = (datetime.now(timezone.utc) - timedelta(days=days)).strftime(_STAMP)
            for name in self._names():
                if name.rpartition("/")[2] < oldest:
                    with suppress(FileNotFoundError):  # another run was quicker
                        self._files.rm_file(name)

    def _names(self) -> list[str]:
        self._files.invalidate_cache()
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = self._files.ls(self._folder, detail=False)
        return sorted(name for name in names if name.endswith(SUFFIX))

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of the library of whatever address it is
            raise VerdictStoreError(
                f"the store of verdicts {self.address} cannot be {what}: {type(error).__name__}: {error}",
                remedy="check the address, and that this machine may use it; s3:// needs pytest-cgins[s3]",
            ) from error


def new_name() -> str:
    """A file's name, which sorts by time: no two runs have one."""
    return f"{datetime.now(timezone.utc).strftime(_STAMP)}-{secrets.token_hex(6)}{SUFFIX}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
