"""How much of a GPU's memory this process holds, by NVIDIA's management library (NVML), where that tells.

NVML lists the processes of a GPU with what each holds, by process numbers of the host: in a container or a sandbox
a process does not know its own. So the number is found by doing: the process that holds just so much more while some
memory is allocated here, twice, is this one. Where NVML is absent, lists no process, or withholds what they hold,
there is no answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache

import torch

from pytest_cgins.building.loading import cuda_driver as driver
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.timing.nvml import Gpu

GRAIN_NBYTES = 2**21
"""The driver hands out memory in such pieces."""
TRIALS_NBYTES = (17 * GRAIN_NBYTES, 29 * GRAIN_NBYTES)
"""What is allocated for a moment, to find this process by it."""

Held = Callable[[], Mapping[int, int]]
"""Gives bytes by process number; empty if nothing is told."""


def own_nbytes(device: str) -> int | None:
    """Bytes of a GPU that this process holds, its context among them; None where that is not told."""
    found = _own(torch.device(device).index or 0)
    if found is None:
        return None
    held, number = found
    return held().get(number)


def find_own(held: Held, holding: Callable[[int], AbstractContextManager[None]]) -> int | None:
    """The number of the process whose share rises by just what is held for a moment, each time; None if not one alone.

    Args:
        held: bytes by process number.
        holding: holds as many bytes of the GPU as it is told.
    """
    candidates: set[int] | None = None
    for nbytes in TRIALS_NBYTES:
        before = held()
        with holding(nbytes):
            after = held()
        risen = {
            number
            for number in before.keys() & after.keys()
            if nbytes <= after[number] - before[number] < nbytes + GRAIN_NBYTES
        }
        candidates = risen if candidates is None else candidates & risen
    return candidates.pop() if candidates and len(candidates) == 1 else None


@lru_cache(maxsize=8)
def _own(index: int) -> tuple[Held, int] | None:
    gpu = Gpu.find(index)
    if gpu is None:
        return None

    @contextmanager
    def holding(nbytes: int) -> Iterator[None]:
        pointer = ctypes.c_uint64()
        status = driver.library().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        driver.check(status, "cuMemAlloc")
        try:
            yield
        finally:
            driver.library().cuMemFree_v2(pointer)

    try:
        driver.ensure_context(index, "memory of this process")
        number = find_own(gpu.held_nbytes, holding)
    except LaunchError:  # the GPU is full
        return None
    return None if number is None else (gpu.held_nbytes, number)
