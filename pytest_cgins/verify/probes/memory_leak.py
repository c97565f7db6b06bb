"""Probe `memory_leak`: calls that are repeated on the same tensors leave no more memory in use each time.

The growth of the first calls is none: pools, caches and compilers fill up. A leak grows in every later call, and
does so again in a second, longer round after Python's garbage was collected. The last of these calls writes into
poisoned outputs, and its answer must be that of the first: a kernel that counts its calls is seen.

On a CPU it is malloc's count of bytes in use, which is exact, and the address space; on a GPU torch's allocator
and the pool of cudaMallocAsync, which are this process's own and exact, and for cudaMalloc the driver's free memory,
in grains of 2 MiB. That is the whole GPU's, so a rise of it is a suspicion only, whoever caused it. Where NVML tells
what this process holds (`memory.own_nbytes`), its count decides in the second round; where it does not, calls are held
against idle spells (`idle_pairs`), which finds leaks of 2 MiB a call in calls of up to some 40 ms, and of 256 KiB where
the GPU is otherwise quiet. Without a suspicion neither is asked.

A kernel that begins to leak or to err after more calls than these is not seen here; after timing, which is thousands
of calls, its answers are looked at again.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.device import device_of
from pytest_cgins.core.text import counted
from pytest_cgins.verify.messages import RaisedError
from pytest_cgins.verify.probe_support import idle_pairs, memory
from pytest_cgins.verify.probe_support.rerun import Deviation, attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial
from pytest_cgins.verify.probes.repeat import NAME as REPEAT

NAME = "memory_leak"
LEAST_CALLS = 3
MOST_CALLS, MOST_CALLS_OF_ACCELERATOR = 6, 12
BUDGET_S = 0.005
SECOND_LEAST_CALLS = 16
"""However long they take: interpreters, too, allocate in a few calls in a row, and on a busy machine the budget ends there."""
SECOND_MOST_CALLS = 128
SECOND_BUDGET_S = 0.1
SMALLEST_NBYTES = 32
"""A call, on average: less is how allocators and interpreters breathe."""
GRAINY = ("mapped", "own")
"""Counts that grow by whole pages or more: not every call shows."""
SHARED = "driver"
"""The count that other processes move."""


class Leak:
    """Repeats one trial's call; afterwards `facts` says what memory did."""

    def __init__(
        self, trial: SetTrial, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._trial = trial
        self._around = around
        self._tensors: list[torch.Tensor] = []
        self._error: RaisedError | None = None
        self.facts: dict[str, Any] = {}

    def deviations(self) -> Iterator[Deviation]:
        """Repeat the call; the last answer, where it is not the first one."""
        if self._trial.mutates_integers:
            self.facts = {
                "not_run": "the op changes integers in place, which may be positions: it is not repeated"
            }
            return
        is_accelerator = device_of(self._trial.device).is_accelerator
        first = self._round(MOST_CALLS_OF_ACCELERATOR if is_accelerator else MOST_CALLS, BUDGET_S)
        self.facts = {"first": first}
        shared = _may_leak(first)
        if not self._error and (shared or _leaking(first)):
            told = shared and memory.held_beside_torch(self._trial.device) is not None
            if told or _leaking(first):
                self._second(with_own=told)
            if shared and not told and not self._error and not judge(self.facts):
                self.facts["pairs"] = self._pairs()
        if not self._error and not self._trial.mutates:
            self._call(poisoned=True)
        if self._error or not (self._trial.mutates or all_same(self._tensors, self._trial.answer)):
            yield Deviation(REPEAT, self._trial.name, self._tensors, self._error)

    def _second(self, *, with_own: bool) -> None:
        """The longer round, and what of its growth stays when garbage was collected."""
        device = self._trial.device
        gc.collect()
        before = memory.in_use(device, with_own=with_own)
        again = self._round(SECOND_MOST_CALLS, SECOND_BUDGET_S, least=SECOND_LEAST_CALLS, with_own=with_own)
        gc.collect()
        after = memory.in_use(device, with_own=with_own)
        kept = {key: after[key] - before[key] for key in before.keys() & after.keys()}
        self.facts |= {"second": again, "kept": kept}

    def _round(
        self, most: int, budget_s: float, *, least: int = LEAST_CALLS, with_own: bool = False
    ) -> dict[str, list[int]]:
        """What is in use before the first call and after each."""
        device = self._trial.device
        now = memory.in_use(device, with_own=with_own)
        series = {key: [value] for key, value in now.items()}
        end = time.monotonic() + budget_s
        for number in range(most):
            if self._error or (number >= least and time.monotonic() > end):
                break
            self._call()
            now = memory.in_use(device, with_own=with_own)
            for key in series.keys() & now.keys():
                series[key].append(now[key])
        return series

    def _call(self, *, poisoned: bool = False) -> None:
        with self._around():
            self._tensors, self._error = attempt(lambda: self._trial.rerun(poisoned=poisoned))

    def _pairs(self) -> list[tuple[int, int]]:
        """The rises of the shared count in calls, and in idle spells of the same length."""

        def call() -> None:
            _, self._error = attempt(self._trial.rerun)
            gc.collect(0)  # what Python collects is not leaked

        def taken() -> int:
            return memory.driver_in_use(self._trial.device)

        return idle_pairs.observe(call, taken, lambda: self._error is not None)


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    return _judge_rounds(facts) or _judge_pairs(facts.get("pairs", ()))


def _judge_rounds(facts: dict[str, Any]) -> str:
    first, second = facts["first"], facts.get("second", {})
    # What was not asked in the first round was asked on another's suspicion.
    for key in (key for key in _leaking(second) if key not in first or key in _leaking(first)):
        grown = second[key][-1] - second[key][0]
        calls = len(second[key]) - 1
        # Garbage that Python collects was not leaked.
        if facts["kept"].get(key, 0) * 2 >= grown:
            return (
                f"memory in use ({_WHERE[key]}) grows by about {counted(round(grown / calls), 'byte', grouped=True)} a call, in each of "
                f"{counted(calls, 'call')} on the same tensors: {_REMEDY}"
            )
    return ""


def _judge_pairs(pairs: Sequence[idle_pairs.Pair]) -> str:
    if not idle_pairs.is_growth(pairs):
        return ""
    ahead = [call for call, idle in pairs if call > idle]
    return (
        f"memory in use ({_WHERE[SHARED]}) grows by about {counted(round(statistics.median(ahead)), 'byte', grouped=True)} in {len(ahead)} "
        f"of {counted(len(pairs), 'call')} on the same tensors, and not while the kernel does not run: {_REMEDY}"
    )


_REMEDY = "free what a call allocates, or keep it for the next one"
_WHERE = {
    "malloc": "malloc",
    "mapped": "address space",
    "torch": "torch's allocator",
    "pool": "cudaMallocAsync",
    "own": "what this process holds of the GPU",
    SHARED: "free memory of the GPU",
}


def _leaking(series: Mapping[str, Sequence[int]]) -> list[str]:
    """The process' own counts that rise in every call; the first calls are not looked at."""
    return [key for key, values in series.items() if key != SHARED and _grows(values, grainy=key in GRAINY)]


def _may_leak(series: Mapping[str, Sequence[int]]) -> bool:
    """Whether the shared count rose in later calls: others' frees hide some steps, so a few are enough."""
    later = _later_steps(series.get(SHARED, ()))
    return sum(step > 0 for step in later) >= (1 if len(later) < 8 else LEAST_CALLS - 1)


def _later_steps(values: Sequence[int]) -> list[int]:
    steps = [after - before for before, after in itertools.pairwise(values)]
    return steps[max(1, len(steps) // 4) :]


def _grows(values: Sequence[int], *, grainy: bool) -> bool:
    later = _later_steps(values)
    if len(later) < LEAST_CALLS - 1 or sum(later) < SMALLEST_NBYTES * len(later):
        return False
    if grainy:
        return min(later) >= 0 and sum(step > 0 for step in later) >= LEAST_CALLS - 1
    return min(later) > 0 and statistics.median(later) >= SMALLEST_NBYTES
