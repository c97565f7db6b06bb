"""Probe `physical_floor`: no call takes less time than its least work takes at the device's peaks.

A kernel that leaves its work out, does it elsewhere, or stops the clock, can be faster than physics. The floor is
the greatest of: bytes over the bandwidth of the caches; bytes that cannot have stayed in the last-level cache over
that of the memory (GPU); operations over the peak of the device; the launch of a kernel that does nothing (GPU). Work and
peaks are bounds that no right kernel passes (`timing.least_work`, `timing.peaks`), and a kernel trips below half of the floor.

Every op has a floor that returns memory of its own, for it must write that. On a CPU the floor is far below what real
kernels reach. A kernel that does half of its work is slow enough.
"""

from __future__ import annotations

from pytest_cgins.timing.least_work import Work
from pytest_cgins.timing.peaks import Peaks

NAME = "physical_floor"
SHARE = 0.5
OVERLAP = 0.5
"""Share of a launch that may overlap: by programmatic dependent launch the next one may begin so much earlier."""


def floor_ns_per_call(work: Work, peaks: Peaks, *, cold: bool, launch_ns: float = 0.0) -> float:
    """Nanoseconds that a call takes at least; 0 if nothing is certain.

    Args:
        work: the least work.
        peaks: of the device.
        launch_ns: what the launch of a kernel that does nothing takes, where a call must launch one.
        cold: whether so many copies are used in turn that they outrun the last-level cache twice over.
    """
    # Of what is used in turn a cache of any policy keeps at most its own size, here at most half.
    uncached = max(work.nbytes - peaks.cache_nbytes, work.nbytes / 2 if cold else 0, 0)
    seconds = max(
        work.nbytes / peaks.cache_bytes_per_s,
        uncached / peaks.memory_bytes_per_s,
        work.flops / peaks.flops_per_s_of(work.dtype),
    )
    return max(seconds * 1e9, OVERLAP * launch_ns)


def judge(median_ns_per_call: float, floor_ns_per_call: float) -> str:
    """What is wrong; "" if nothing is."""
    if median_ns_per_call >= SHARE * floor_ns_per_call:
        return ""
    return (
        f"a call took {median_ns_per_call / 1000:,.3f} µs, and launching it, moving its data and doing its arithmetic "
        f"takes {floor_ns_per_call / 1000:,.3f} µs at the peaks of the device: the work is left out, or done where the clock "
        "does not see it"
    )
