"""What the recorded ops take while the model runs, and which signatures cover most of it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch

from pytest_cgins.core.device import Device, device_of

MOST_SAMPLES = 64
"""Calls of one signature that are timed: a GPU's events for all of them would fill the driver's pool."""


class OpTime:
    """Time of the calls of one signature: on the host clock, or between events on the GPU's stream."""

    __slots__ = ("_marks", "_samples_s")

    def __init__(self) -> None:
        self._samples_s: list[float] = []
        self._marks: list[tuple[Device, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._samples_s or self._marks)

    @property
    def is_unsettled(self) -> bool:
        """Whether there is at most the first call, which pays for what is made once."""
        return len(self._samples_s) + len(self._marks) < 2

    def run(self, call: Callable[[], Any], device: torch.device) -> Any:
        """Run a call, and take its time."""
        if len(self._samples_s) + len(self._marks) >= MOST_SAMPLES:
            return call()
        timed = device_of(str(device))
        with timed.current():
            before = timed.mark()
            result = call()
            after = timed.mark()
        self._marks.append((timed, before, after))
        return result

    def add(self, seconds: float) -> None:
        """Note one call of so many seconds."""
        self._samples_s.append(seconds)

    def seconds(self, calls: int) -> float:
        """Estimate for so many calls, by their median; the first pays for what is made once, and is left out."""
        marks, self._marks = self._marks, []
        for device, before, after in marks:
            self.add(device.seconds_between(before, after))
        samples = self._samples_s[1:] or self._samples_s
        return calls * statistics.median(samples) if samples else 0.0


class Candidate(NamedTuple):
    """A signature, or a family of them that differ in a length, up for selection."""

    op: Hashable
    """What the limit counts by."""
    seconds: float
    """Of all its calls; 0 if they were not timed."""
    traces: int
    """How many it makes if all are kept."""


class Selection(NamedTuple):
    """What is kept of candidates."""

    traces: list[int]
    """How many traces of each candidate; 0 where none is."""
    share: float
    """Of the time of all candidates that the kept ones cover; 1 if there is no time."""


def select(candidates: Sequence[Candidate], *, share: float | None, max_per_op: int | None) -> Selection:
    """Choose candidates: in their order, or the longest first until they cover a share of the time.

    Args:
        candidates: in the order in which they were met.
        share: of the time that is enough, (0, 1]; None keeps all.
        max_per_op: traces of one op at most.
    """
    kept = [0] * len(candidates)
    total = sum(candidate.seconds for candidate in candidates)
    order = list(range(len(candidates)))
    if share is not None:
        order.sort(key=lambda index: -candidates[index].seconds)
    used: Counter[Hashable] = Counter()
    covered = 0.0
    for index in order:
        candidate = candidates[index]
        # Sums of floats in another order differ in the last bits; a share of next to nothing is still one trace.
        if share is not None and covered and covered >= share * total * (1 - 1e-9):
            break
        room = candidate.traces if max_per_op is None else max_per_op - used[candidate.op]
        kept[index] = max(0, min(room, candidate.traces))
        used[candidate.op] += kept[index]
        covered += candidate.seconds if kept[index] else 0.0
    return Selection(kept, covered / total if total else 1.0)
