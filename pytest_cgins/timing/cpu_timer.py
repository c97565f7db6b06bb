"""Timing by the host's clock: loops of calls between two readings, on a GPU between two waits for the whole device."""

from __future__ import annotations

import gc
import itertools
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns  # held, since a kernel could replace what the module has

from pytest_cgins.core.measurement import ArmName, Method
from pytest_cgins.timing.timer import Arms, Order, calls_for, mark

TARGET_S = 1e-3
"""Least length of a batch."""
FENCED_TARGET_S = 5e-3
"""Length of a loop on a GPU: waiting for it takes about 10 µs, a hundredth of each loop."""
LOOPS = 5
"""Loops in one batch, of 0.2 ms and more each: a thousand times what reading the clock takes."""

FORGOTTEN_AFTER = 3000
"""So many random numbers, sorted, leave nothing of a kernel's branches in the processor's memory of them."""
UNSORTED = 16
"""Lists of them, so that they are not learned themselves."""

_draw = random.Random(0)  # noqa: S311
_unsorted = itertools.cycle([[_draw.random() for _ in range(FORGOTTEN_AFTER)] for _ in range(UNSORTED)])


def forget_branches() -> None:
    """Sort random numbers, so that the processor remembers nothing of a kernel's branches on its data."""
    sorted(next(_unsorted))


class HostTimer:
    """`time.perf_counter_ns` around loops of calls, with the garbage collector off.

    A batch is five loops, and the middle one counts: on a busy host another process takes the core for
    milliseconds, which would multiply the mean of a batch and hits one or two of its loops. `means` has it all the same.

    Branches are forgotten before each batch. Two builds of one kernel that branch on the same data compete for what the
    processor remembers of them: without that, one was 7% faster than the other for tens of blocks.
    """

    def __init__(
        self,
        arms: Arms,
        *,
        copies: int,
        limit_s: float,
        longer: float = 1.0,
        fence: Callable[[], object] | None = None,
    ) -> None:
        """Warm the arms up, each with so many copies of its tensors, and choose batches, `longer` times as long as usual.

        The limit bounds one batch of every arm together. On a GPU the fence waits for all work on it, whichever stream or
        thread launched it.
        """
        self.method: Method = "fenced-loop" if fence else "perf-counter"
        self._fence = fence or _nothing_to_wait_for
        self._target_s = longer * (FENCED_TARGET_S if fence else TARGET_S)
        self._turns = {name: itertools.cycle(range(copies)) for name in arms}
        self._called = dict.fromkeys(arms, 0)
        self.left_by: list[ArmName | None] = [None] * copies
        self._arms = arms
        self.distinct_calls = copies
        self.batches_per_turn = 1
        seconds = {name: self._seconds_per_call(name, limit_s / len(arms)) for name in arms}
        wanted = calls_for(self._target_s, seconds, limit_s)
        self.means: list[float] = []
        self._loops = {name: min(LOOPS, calls) for name, calls in wanted.items()}
        self._calls_per_loop = {name: -(-calls // self._loops[name]) for name, calls in wanted.items()}
        self.calls = {name: self._loops[name] * self._calls_per_loop[name] for name in arms}
        self.batch_seconds = {name: self.calls[name] * seconds[name] for name in arms}

    def blocks(
        self, orders: Iterable[Order], before: Callable[[], object] = lambda: None
    ) -> Iterator[list[float]]:
        """See `Timer.blocks`."""
        for order in orders:
            batches = []
            for arm in order:
                before()
                forget_branches()
                batches.append(self._batch(arm))
            self.means = [statistics.fmean(loops) for loops in batches]
            yield [statistics.median(loops) for loops in batches]

    def repeat(self, arm: ArmName, calls: int) -> None:
        """See `Timer.repeat`."""
        self._loop(arm, calls)

    def _batch(self, arm: ArmName) -> list[float]:
        """Nanoseconds a call of each loop."""
        calls = self._calls_per_loop[arm]
        return [self._loop(arm, calls) / calls for _ in range(self._loops[arm])]

    def _seconds_per_call(self, arm: ArmName, limit_s: float) -> float:
        """Best of ever longer loops until one lasts as long as a batch should: the first calls are warm-up."""
        calls, best, spent = 1, float("inf"), 0.0
        while True:
            elapsed = self._loop(arm, calls) / 1e9
            best, spent = min(best, elapsed / calls), spent + elapsed
            if elapsed >= self._target_s or spent > limit_s:
                # A second look, since a first call that is slow enough would otherwise be all of it.
                return best if calls > 1 else min(best, self._loop(arm, 1) / 1e9)
            calls *= 2

    def _loop(self, arm: ArmName, calls: int) -> int:
        call, turn = self._arms[arm], self._turns[arm]
        with _no_garbage_collection():
            self._fence()
            start = perf_counter_ns()
            for _ in range(calls):
                call(next(turn))
            self._fence()
            elapsed = perf_counter_ns() - start
        mark(self.left_by, arm, self._called[arm], calls)
        self._called[arm] += calls
        return max(1, elapsed)


def _nothing_to_wait_for() -> None:
    """A call on the CPU is done when it returns."""


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
