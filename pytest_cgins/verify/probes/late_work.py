"""Probe `late_work`: when the call has returned, and its stream is done, the answer is there and stays.

Work that a kernel leaves to another stream or thread escapes whoever times it, and whoever reads the answer. Here it is
seen if it takes longer than to look; `on_stream` sees work that leaves the stream however fast it is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from pytest_cgins.building.loading.returned import address
from pytest_cgins.core.bitwise import all_same, same
from pytest_cgins.core.device import device_of
from pytest_cgins.verify.probe_support.rerun import Deviation
from pytest_cgins.verify.probe_support.set_trial import SetTrial

NAME = "late_work"
SETTLE_S = 0.001
"""How long to wait on a CPU for work that was left to threads."""
NEW_THREADS_WAIT_S = 0.1
"""How long at most for threads that the kernel started to end. A pool's threads stay, and cost this once."""


class Threads:
    """The threads of this process that are known, so that new ones are noticed."""

    def __init__(self) -> None:
        self._known = _threads()

    def settle(self, device: str) -> None:
        """Wait until what the kernel may have left behind is done, as far as that can be known."""
        device_of(device).synchronize()
        time.sleep(SETTLE_S)
        end = time.monotonic() + NEW_THREADS_WAIT_S
        while time.monotonic() < end and _threads() - self._known:
            time.sleep(SETTLE_S)
        self._known |= _threads()


def deviations(
    trials: Iterable[SetTrial], ran: Sequence[SetTrial], *, overwritten: bool = False
) -> Iterator[Deviation]:
    """What the kernel's own tensors hold now, where that is not what they held as the call returned.

    Args:
        trials: those to look at.
        ran: all on which the kernel ran, in that order: a later one's answer may lie on the same memory.
        overwritten: whether only later calls can have changed it.
    """
    for trial in trials:
        if not all_same(trial.live, trial.answer):
            later = ran[ran.index(trial) + 1 :]
            taken = {address(tensor) for other in later for tensor in other.live if tensor.numel()}
            pairs = zip(trial.live, trial.answer, strict=True)
            reused = overwritten or any(
                address(live) in taken for live, kept in pairs if not same(live, kept)
            )
            yield Deviation(NAME, trial.name, trial.live, reused=reused)


def _threads() -> set[int]:
    with suppress(OSError):
        return {int(name) for name in os.listdir("/proc/self/task")}  # noqa: PTH208
    return {thread.native_id or 0 for thread in threading.enumerate()}
