"""Whether the times that a worker tells are true: its arms are called again, and timed from outside of it.

A kernel shares its process with the clock that times it, and may have changed that. So once a test has ended well, its
arms are called in turns, in a row for 5 ms that the parent times; see `run.request_clock`. A bet is made on the arms'
ratio by that clock to lie above the told one: noise makes it so in half of the turns at most, a false clock in most.
The base is compared in the same way with the base in a separate process, because a kernel may slow its rival.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median

from pytest_cgins.core.measurement import ArmName
from pytest_cgins.core.number_text import percent, ratio
from pytest_cgins.core.text import counted
from pytest_cgins.run.request_clock import RequestTime
from pytest_cgins.timing.block_sampler import Prepared
from pytest_cgins.timing.sequential import log_e

CALLED_S = 5e-3
"""An arm is called for so long: what goes with a request takes a twentieth of it, of either arm."""
MOST_CALLS = 10**5
MOST_TURNS = 64
LOG_PROOF = math.log(1e4)
"""Ln E from which told times are disputed; a fresh process must do so, too."""
LOG_CLEAR = math.log(4)
"""Ln E from which they are taken to be true: three turns that agree."""
TOLERANCE = 0.1
"""Share by which ratios may differ: batches of 1 ms find other things in the caches than calls of 5 ms do."""
BUSY_TOLERANCE = 0.02
"""Share by which a base may be slower while threads of the kernel are busy."""
BUSY = 0.01
"""Share of a CPU from which threads count as busy."""

Repeat = Callable[[ArmName, int], RequestTime | None]
"""Has a worker call an arm so many times."""


@dataclass(frozen=True, slots=True)
class OutsideClock:
    """Times the arms of an open measurement from outside of its process."""

    prepared: Prepared
    repeat: Repeat

    def ns_per_call(self, arm: ArmName) -> tuple[float, float]:
        """Time of one call, and the share of it for which other threads of the worker were busy."""
        batch = self.prepared.calls[arm]
        calls = max(1, math.ceil(CALLED_S * batch / self.prepared.batch_seconds[arm]))
        calls = min(calls, MOST_CALLS)
        if self.prepared.method == "cuda-graph":
            calls = batch * -(-calls // batch)
        took = self.repeat(arm, calls)
        return (math.nan, 0.0) if took is None else (took.ns / calls, took.others_ns / took.wall_ns)

    def dispute(self, against: ArmName, reported: float) -> str:
        """Why a reported ratio of the kernel's time to another arm's is false; "" if it may be true."""

        def turn() -> tuple[float, float]:
            theirs, ours = self.ns_per_call(against)[0], self.ns_per_call("kernel")[0]
            return ours / theirs, reported * (1 + TOLERANCE)

        if not (ratios := _above(turn)):
            return ""
        return (
            f"the timing worker reported that the kernel takes {ratio(reported)} times as long as {against}; timed from outside "
            f"the worker, it took {ratio(median(ratios))} times as long ({counted(len(ratios), 'turn')})"
        )

    def slowdown(self, alone: OutsideClock, stopped: Callable[[], AbstractContextManager[None]]) -> str:
        """Message that the base is slower here than in a separate process; "" if it is not.

        `alone` has the base as the kernel of a process that this kernel was never in, and `stopped` holds this process, which may
        keep the other one from running.
        """
        if self.prepared.method != alone.prepared.method:
            return ""  # the base cannot be captured there: its times say nothing of those here
        busy: list[tuple[float, float]] = []

        def turn() -> tuple[float, float]:
            here, busy_here = self.ns_per_call("base")
            with stopped():
                there, busy_there = alone.ns_per_call("kernel")
            busy.append((busy_here, busy_there))
            # Where the base has threads itself, nobody knows whose are busy.
            is_disturbed = busy_there < BUSY < busy_here - busy_there
            return here / there, 1 + (BUSY_TOLERANCE if is_disturbed else TOLERANCE)

        if not (ratios := _above(turn)):
            return ""
        here, there = map(median, zip(*busy, strict=True))
        return (
            f"the base takes {ratio(median(ratios))} times as long in the kernel's process as alone "
            f"({counted(len(ratios), 'turn')}); other threads used {percent(here)} of a CPU there, {percent(there)} alone"
        )


def _above(turn: Callable[[], tuple[float, float]]) -> list[float]:
    """The ratios of turns, where they are proven to lie above the limits that turns have; [] if not."""
    ratios: list[float] = []
    above = 0
    while len(ratios) < MOST_TURNS and log_e(len(ratios) - above, above) < LOG_CLEAR:
        made, limit = turn()
        ratios.append(made)
        above += made > limit
        if log_e(above, len(ratios) - above) >= LOG_PROOF:
            return ratios
    return []
