"""How many methods of each axis a round may take, from how far the kernel is from the device's peaks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.methods.definition import Axis

METHODS_A_ROUND = 3
MOST_AN_AXIS = 2
LEAST_GAP = 0.10
"""An axis that is nearer to its peak than this gets no method."""
IDLE = 0.9
"""A kernel that is farther from both peaks than this waits."""
ASSUMED_GAP = 0.5
"""For an axis without data."""
TIES: tuple[Axis, ...] = ("memory", "latency", "compute")
"""Who comes first where two remainders are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps(Document):
    """How far a kernel is from the peaks: 0 at the peak, 1 at nothing; None without data."""

    compute: float | None = None
    """1 less the busiest of tensor cores, fp32 pipes and SM throughput."""
    memory: float | None = None
    """1 less the share of the memory's throughput."""
    latency: float | None = None
    """Share of warps that the worst kind of stall holds."""

    def __post_init__(self) -> None:
        for axis in TIES:
            gap = self.of(axis)
            if gap is not None and not 0 <= gap <= 1:
                raise ValueError(f"the gap of {axis} is {gap}: it must be from 0 to 1")

    def of(self, axis: Axis) -> float | None:
        """Of one axis."""
        gap: float | None = getattr(self, axis)
        return gap

    def largest(self, but: Axis | None = None) -> Axis | None:
        """The axis that is farthest from its peak, one left out; None where nothing was measured."""
        known = {axis: gap for axis in TIES if (gap := self.of(axis)) is not None and axis != but}
        return max(known, key=lambda axis: known[axis], default=None)

    def bound(self) -> Axis | None:
        """Of compute and memory that which is nearer to its peak; latency where both are far; None without data."""
        if self.compute is None or self.memory is None:
            return None
        if min(self.compute, self.memory) > IDLE:
            return "latency"
        return "compute" if self.compute < self.memory else "memory"

    def leading(self) -> Axis | None:
        """The axis with most to win; None if nothing was measured, or all are near their peaks.

        Of compute and memory only that counts which bounds the kernel: the other's gap is natural. What is far from both
        waits.
        """
        bound = self.bound()
        if bound == "latency":
            return bound
        best = self.largest(None if bound is None else "memory" if bound == "compute" else "compute")
        return best if best is not None and (self.of(best) or 0.0) >= LEAST_GAP else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisBudget(Document):
    """Methods that a round may take, by axis."""

    compute: int
    """Of the compute axis."""
    memory: int
    """Of the memory axis."""
    latency: int
    """Of the latency axis."""
    assumed: tuple[Axis, ...] = ()
    """Axes without data, whose gap was taken for `ASSUMED_GAP`."""

    def of(self, axis: Axis) -> int:
        """Of one axis."""
        count: int = getattr(self, axis)
        return count

    @property
    def total(self) -> int:
        """Of all axes."""
        return self.compute + self.memory + self.latency


def axis_budget(gaps: Gaps) -> AxisBudget:
    """Share out a round's three methods.

    Gaps below 0.10 get none; where all are, each axis gets one. The others have shares in proportion to their gaps,
    rounded by largest remainder, at most two an axis. One axis alone therefore gets two, and the third is not spent.
    """
    known = {axis: gaps.of(axis) for axis in TIES}
    assumed = tuple(axis for axis, gap in known.items() if gap is None)
    sizes = {axis: ASSUMED_GAP if gap is None else gap for axis, gap in known.items()}
    open_axes = [axis for axis in TIES if sizes[axis] >= LEAST_GAP]
    if not open_axes:
        return AxisBudget(compute=1, memory=1, latency=1, assumed=assumed)
    total = math.fsum(sizes[axis] for axis in open_axes)
    shares = {axis: METHODS_A_ROUND * sizes[axis] / total for axis in open_axes}
    counts = dict.fromkeys(TIES, 0) | {axis: min(MOST_AN_AXIS, int(shares[axis])) for axis in open_axes}
    # Rounded, so that shares which are equal by their formula are equal here, too.
    by_remainder = sorted(
        open_axes, key=lambda axis: (-round(shares[axis] - counts[axis], 9), TIES.index(axis))
    )
    left = METHODS_A_ROUND - sum(counts.values())
    while left and any(counts[axis] < MOST_AN_AXIS for axis in open_axes):
        for axis in by_remainder:
            if left and counts[axis] < MOST_AN_AXIS:
                counts[axis] += 1
                left -= 1
    return AxisBudget(
        compute=counts["compute"], memory=counts["memory"], latency=counts["latency"], assumed=assumed
    )


NEAR = 0.15
"""As near as this to a peak is near."""
BELIEVED = 1.15
"""A larger share is no nearness: the data came from a cache, or the declared work is not done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPeak(Document):
    """Whether to stop, and why."""

    stop: bool
    """Whether the kernel is near a peak."""
    reason: str
    """In words, also where it is not."""


def near_peak(
    *, compute_share: float | None, memory_share: float | None, gaps: Gaps | None = None
) -> NearPeak:
    """Whether the larger of a kernel's shares of the device's peaks is 0.85 and more, or all three gaps are small.

    A kernel that memory bounds never has a small compute gap: the gaps alone hardly ever stop anything.

    Args:
        compute_share: operations a second over the device's rate for the type; None without data.
        memory_share: bytes a second over the device's bandwidth; None without data.
        gaps: of the three axes, where a profiler told them.
    """
    shares = [
        (share, what)
        for share, what in ((memory_share, "bandwidth"), (compute_share, "compute"))
        if share is not None and 0 <= share <= BELIEVED
    ]
    best, what = max(shares, default=(0.0, ""))
    if shares and best >= 1 - NEAR:
        return NearPeak(stop=True, reason=f"near its peak: {best:.0%} of the device's {what}")
    small = [gaps.of(axis) for axis in TIES] if gaps is not None else []
    if small and all(gap is not None and gap < NEAR for gap in small):
        return NearPeak(stop=True, reason=f"near its peak: the gaps of all three axes are below {NEAR:.0%}")
    doubtful = [share for share in (compute_share, memory_share) if share is not None and share > BELIEVED]
    if doubtful:
        return NearPeak(
            stop=False,
            reason=f"a share of {max(doubtful):.0%} of a peak is not believed: inputs come from a cache, or less is done "
            "than the work that is declared",
        )
    if not shares:
        return NearPeak(stop=False, reason="no data on how near the peak it is")
    return NearPeak(
        stop=False, reason=f"{best:.0%} of the device's {what}, {1 - NEAR:.0%} would be near its peak"
    )
