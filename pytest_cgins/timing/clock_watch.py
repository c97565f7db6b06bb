"""Decides which blocks are timed again, by the GPU's clock alone: never by how long they took.

A block during which the clock changed compares a kernel with another one at another clock. To look at the times for
that would be to choose the samples; what the management library told is none of them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cgins.core.measurement import Clocks
from pytest_cgins.timing.nvml import Gpu

CLOCK_TOLERANCE = 0.02
"""Share by which a block's clock may differ from the blocks' median."""
FREE_REDOS = 8
"""So many blocks may be redone before any is kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was told after a block."""

    sm_mhz: int | None = None
    """Clock of the multiprocessors; None where nobody tells."""
    throttled: tuple[str, ...] = ()
    """Why the clock was lower than it could be, as `Gpu.throttle_reasons`."""


class ClockWatch:
    """Reads one GPU's clock after each block; all of it is nothing where no library answers."""

    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu

    def read(self) -> Reading:
        """The clock and what lowers it, now; about 2 µs."""
        return Reading() if self._gpu is None else Reading(self._gpu.sm_mhz(), self._gpu.throttle_reasons())


def judge(chunk: Sequence[Reading], kept: Sequence[Reading] = ()) -> list[str | None]:
    """Why each block of a chunk is to be timed anew, beside those that were kept before; None for one that is kept.

    A reason that stood in most blocks is how this GPU runs under this load, such as a product of matrices at its
    limit of power: only what came for a while makes a block another's unlike.
    """
    known = [*kept, *chunk]
    counted = Counter(reason for one in known for reason in set(one.throttled))
    steady = {reason for reason, times in counted.items() if 2 * times > len(known)}
    clocks = [one.sm_mhz for one in known if one.sm_mhz is not None]
    usual = statistics.median(clocks) if clocks else 0.0
    return [_why(one, steady, usual) for one in chunk]


def redos_allowed(kept: int) -> int:
    """Blocks that may have been redone by the time so many are kept: a clock that never settles must not go on."""
    return kept + FREE_REDOS


def clocks(kept: Sequence[Reading], redone: Sequence[str]) -> Clocks | None:
    """The record of all blocks; None where nothing was told of any."""
    told = tuple(one.sm_mhz for one in kept if one.sm_mhz is not None)
    throttled = tuple(dict.fromkeys(reason for one in kept for reason in one.throttled))
    if not (told or throttled or redone):
        return None
    return Clocks(sm_mhz=told, redone=tuple(redone), throttled=throttled)


def _why(block: Reading, steady: set[str], usual: float) -> str | None:
    if passing := [reason for reason in block.throttled if reason not in steady]:
        return ", ".join(passing)
    if block.sm_mhz is not None and abs(block.sm_mhz - usual) > CLOCK_TOLERANCE * usual:
        return f"clock {block.sm_mhz} MHz, median {usual:g} MHz"
    return None
