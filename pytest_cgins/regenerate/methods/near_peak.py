"""When a kernel is so near to what its device can do that no further round is worth its price."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.methods.axis_budget import TIES, Gaps

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
