"""Probe `memory_leak`: calls that are repeated on the same tensors leave no more memory in use each time.

The growth of the first calls is none: pools, caches and compilers fill up. A leak grows in every later call, and
does so again in a second, longer round after Python's garbage was collected. The last of these calls writes into
poisoned outputs, and its answer must be that of the first: a kernel that counts its calls is seen.

On a CPU it is malloc's count of bytes in use, which is exact, and the address space; on a GPU torch's allocator,
the pool of cudaMallocAsync, and the driver's free memory, whose grains of 2 MiB hide leaks by cudaMalloc of less
than about 200 KiB a call. A kernel that begins to leak or to err after more calls than these is not seen here;
after timing, which is thousands of calls, its answers are looked at again.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from pytest_cgins.probes import memory
from pytest_cgins.probes.bits import all_same
from pytest_cgins.probes.raised import attempt
from pytest_cgins.probes.repeat import NAME as REPEAT
from pytest_cgins.probes.trial import Deviation, Trial

NAME = "memory_leak"
LEAST_CALLS = 3
MOST_CALLS = {"cpu": 10, "cuda": 32}
BUDGET_S = 0.02
SECOND_MOST_CALLS = 128
SECOND_BUDGET_S = 0.1
SMALLEST_NBYTES = 32
"""A call, on average: less is how allocators and interpreters breathe."""
GRAINY = ("mapped", "driver")
"""Counts that grow by whole pages or more: not every call shows."""


class Leak:
    """Repeats one trial's call; afterwards `facts` says what memory did."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._tensors: list[torch.Tensor] = []
        self._error: dict[str, Any] | None = None
        self.facts: dict[str, Any] = {}

    def deviations(self) -> Iterator[Deviation]:
        """Repeat the call; the last answer, where it is not the first one."""
        if self._trial.mutates_integers:
            self.facts = {
                "not_run": "the op changes integers in place, which may be positions: it is not repeated"
            }
            return
        family = self._trial.device.partition(":")[0]
        first = self._round(MOST_CALLS[family], BUDGET_S)
        self.facts = {"first": first}
        if not self._error and _leaking(first):
            gc.collect()
            before = memory.in_use(self._trial.device)
            again = self._round(SECOND_MOST_CALLS, SECOND_BUDGET_S)
            gc.collect()
            after = memory.in_use(self._trial.device)
            self.facts |= {"second": again, "kept": {key: after[key] - before[key] for key in before}}
        if not self._error and not self._trial.mutates:
            self._tensors, self._error = attempt(lambda: self._trial.rerun(poisoned=True))
        if self._error or not (self._trial.mutates or all_same(self._tensors, self._trial.answer)):
            yield Deviation(REPEAT, self._trial.name, self._tensors, self._error)

    def _round(self, most: int, budget_s: float) -> dict[str, list[int]]:
        """What is in use before the first call and after each."""
        device = self._trial.device
        now = memory.in_use(device)
        series = {key: [value] for key, value in now.items()}
        end = time.monotonic() + budget_s
        for number in range(most):
            if self._error or (number >= LEAST_CALLS and time.monotonic() > end):
                break
            _, self._error = attempt(self._trial.rerun)
            now = memory.in_use(device)
            for key, values in series.items():
                values.append(now[key])
        return series


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    leaking = _leaking(facts["first"])
    if "second" not in facts:
        return ""
    again = _leaking(facts["second"])
    for key in leaking:
        grown = facts["second"][key][-1] - facts["second"][key][0]
        calls = len(facts["second"][key]) - 1
        # Garbage that Python collects was not leaked.
        if key in again and facts["kept"][key] * 2 >= grown:
            return (
                f"memory in use ({_WHERE[key]}) grows by about {round(grown / calls):,} bytes a call, in each of "
                f"{calls} calls on the same tensors: free what a call allocates, or keep it for the next one"
            )
    return ""


_WHERE = {
    "malloc": "malloc",
    "mapped": "address space",
    "torch": "torch's allocator",
    "pool": "cudaMallocAsync",
    "driver": "free memory of the GPU",
}


def _leaking(series: Mapping[str, Sequence[int]]) -> list[str]:
    """Who counts more after every call; the first calls are not looked at."""
    return [key for key, values in series.items() if _grows(values, grainy=key in GRAINY)]


def _grows(values: Sequence[int], *, grainy: bool) -> bool:
    steps = [after - before for before, after in itertools.pairwise(values)]
    later = steps[max(1, len(steps) // 4) :]
    if len(later) < LEAST_CALLS - 1 or sum(later) < SMALLEST_NBYTES * len(later):
        return False
    if grainy:
        return min(later) >= 0 and sum(step > 0 for step in later) >= LEAST_CALLS - 1
    return min(later) > 0 and statistics.median(later) >= SMALLEST_NBYTES
