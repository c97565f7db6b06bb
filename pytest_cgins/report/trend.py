"""A history as one trend a case, parted where what was measured with became another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.environment_key import Key
from pytest_cgins.report.history import HistoryEntry

LAST = 10
"""Entries whose median the latest one is held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(Document):
    """Entries of one case under one hard and one soft key: only these are compared with each other."""

    hard: Key
    """Times of another are not comparable."""
    soft: Key
    """Nor are ratios of another."""
    hard_changes: tuple[str, ...]
    """What of the hard key is another than in the segment before: `device NVIDIA A100 → NVIDIA H200`."""
    soft_changes: tuple[str, ...]
    """The same of the soft key: `driver 580.65 → 581.10`."""
    entries: tuple[HistoryEntry, ...]
    """By time; at least one."""
    change: float | None
    """The latest time over the median of those before it, of so many at most as were asked for; None for the first."""

    @property
    def latest(self) -> HistoryEntry:
        """The newest entry."""
        return self.entries[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend(Document):
    """One case."""

    config: str
    """Path of its `cgins.yaml`."""
    case: str
    """Its name."""
    segments: tuple[Segment, ...]
    """The one that was added to last comes last. Runs that went back to an earlier key continue its segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends(Document):
    """What `cgins history --json` prints."""

    version: int
    """Of the entries, `history.HISTORY_VERSION`."""
    last: int
    """Entries that a `change` goes back at most."""
    trends: tuple[Trend, ...]
    """By file and case."""


def trends(
    entries: Iterable[HistoryEntry], *, case: str = "*", since: datetime | None = None, last: int = LAST
) -> tuple[Trend, ...]:
    """Part a history.

    Args:
        entries: in any order.
        case: pattern of case names, as of a shell; `*` matches slashes too.
        since: entries from before are left out.
        last: how many entries back a change is taken over.
    """
    found: dict[tuple[str, str], dict[tuple[str, str], list[HistoryEntry]]] = {}
    for entry in sorted(entries, key=lambda one: one.when):
        if fnmatchcase(entry.case, case) and (since is None or entry.when >= since):
            parts = found.setdefault((entry.config, entry.case), {})
            parts.setdefault((entry.hard.digest, entry.soft.digest), []).append(entry)
    return tuple(
        Trend(config=config, case=name, segments=_segments(list(parts.values()), last))
        for (config, name), parts in sorted(found.items())
    )


def _segments(parts: list[list[HistoryEntry]], last: int) -> tuple[Segment, ...]:
    parts.sort(key=lambda entries: entries[-1].when)
    before = [None, *(entries[0] for entries in parts)]
    return tuple(
        Segment(
            hard=entries[0].hard,
            soft=entries[0].soft,
            **changes(previous, entries[0]),
            entries=tuple(entries),
            change=_change(entries, last),
        )
        for previous, entries in zip(before, parts, strict=False)
    )


def changes(before: Segment | HistoryEntry | None, now: Segment | HistoryEntry) -> dict[str, Any]:
    """A segment's `hard_changes` and `soft_changes`."""
    return {
        "hard_changes": before.hard.changes_to(now.hard) if before else (),
        "soft_changes": before.soft.changes_to(now.soft) if before else (),
    }


def _change(entries: list[HistoryEntry], last: int) -> float | None:
    earlier = [entry.kernel_ns for entry in entries[:-1]][-last:]
    return entries[-1].kernel_ns / statistics.median(earlier) if earlier else None
