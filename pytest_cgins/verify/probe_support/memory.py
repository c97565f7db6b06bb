"""How much memory this process has in use, as its allocators, the system and the GPU's driver tell it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache

import torch

from pytest_cgins.building.loading import cuda_driver as driver
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.timing.nvml import Gpu

_PAGE_NBYTES = os.sysconf("SC_PAGE_SIZE")
_RESET_PEAK = "5"  # proc(5): resets the peak of the resident set
_POOL_USED_NOW = 7  # CU_MEMPOOL_ATTR_USED_MEM_CURRENT

GRAIN_NBYTES = 2**21
"""The driver hands out memory in such pieces."""
TRIALS_NBYTES = (17 * GRAIN_NBYTES, 29 * GRAIN_NBYTES)
"""What is allocated for a moment, to find this process by it."""

Held = Callable[[], Mapping[int, int]]
"""Gives bytes by process number; empty if nothing is told."""

# Taken before any kernel is loaded.
_stats = torch.cuda.memory_stats_as_nested_dict
_reset_peak = torch.cuda.reset_peak_memory_stats
_free_and_total = torch.cuda.mem_get_info


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
                     "fordblks", "keepcost")
    )  # fmt: skip


def _mallinfo() -> ctypes._NamedFuncPointer | None:
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _MallocInfo
    return function


_mallinfo2 = _mallinfo()


def in_use(device: str, *, with_own: bool = False) -> dict[str, int]:
    """Bytes in use now, by who counts them; who cannot be asked is left out.

    `malloc` (blocks that were not freed), `mapped` (the process's address space but for malloc's), and for a GPU `torch` (its
    allocator), `pool` (cudaMallocAsync), `driver` (the whole GPU, other processes included, but for what torch holds here); on suspicion
    `own`, too, `held_beside_torch`, which takes longer than the others.
    """
    if device_of(device).is_cuda:
        found = _device_in_use(torch.device(device))
        own = held_beside_torch(device) if with_own else None
        return found if own is None else {**found, "own": own}
    found = {}
    of_malloc = 0
    if _mallinfo2 is not None:
        info = _mallinfo2()
        found["malloc"] = info.uordblks + info.hblkhd
        of_malloc = info.arena + info.hblkhd
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:  # noqa: PTH123
        found["mapped"] = int(file.read().split()[0]) * _PAGE_NBYTES - of_malloc
    return found


def driver_in_use(device: str) -> int:
    """Bytes of the GPU that are taken, by whomever, but for what torch's allocator holds in this process."""
    free, total = _free_and_total(torch.device(device))
    return total - free - _of_torch(torch.device(device))["reserved"]


def held_beside_torch(device: str) -> int | None:
    """Bytes of the GPU that this process holds, but for what torch's allocator does; None where nobody tells."""
    own = own_nbytes(device)
    return None if own is None else own - _of_torch(torch.device(device))["reserved"]


def begin_peak(device: str, *, at_most: bool = False) -> int | None:
    """Start to watch for the most memory; gives what is in use now, or None where it cannot be watched.

    Args:
        device: `cpu` or `cuda:0`.
        at_most: be content with a bound: only root may reset what a shielded process had at its most, which `peak` then gives.
    """
    if device_of(device).is_cuda:
        _reset_peak(torch.device(device))
        return _of_torch(torch.device(device))["allocated"]
    with suppress(OSError):
        with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123
            file.write(_RESET_PEAK)
        return peak(device)
    return _of_status("VmRSS") if at_most else None


def peak(device: str) -> int | None:
    """The most since `begin_peak`: resident bytes of this process, or what torch's allocator gave on a GPU."""
    if device_of(device).is_cuda:
        return _of_torch(torch.device(device))["peak"]
    return _of_status("VmHWM")


def _of_status(name: str) -> int | None:
    """Bytes of this process by a name in its status; None where nobody tells."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _of_torch(device: torch.device) -> dict[str, int]:
    """Bytes that torch's allocator gave out, those at the peak, and those that it holds of the GPU."""
    stats = _stats(device)
    if not stats:  # CUDA was not begun
        return dict.fromkeys(("allocated", "peak", "reserved"), 0)
    allocated = stats["allocated_bytes"]["all"]
    return {
        "allocated": allocated["current"],
        "peak": allocated["peak"],
        "reserved": stats["reserved_bytes"]["all"]["current"],
    }


def _device_in_use(device: torch.device) -> dict[str, int]:
    of_torch = _of_torch(device)
    free, total = _free_and_total(device)
    found = {"torch": of_torch["allocated"], "driver": total - free - of_torch["reserved"]}
    pool, used = ctypes.c_void_p(), ctypes.c_uint64()
    library = driver.library()
    index = device.index or 0
    if library.cuDeviceGetDefaultMemPool(ctypes.byref(pool), index) == 0 and (
        library.cuMemPoolGetAttribute(pool, _POOL_USED_NOW, ctypes.byref(used)) == 0
    ):
        found["pool"] = used.value
    return found


# ---- what this process holds of a GPU
#
# NVIDIA's management library (NVML) lists the processes of a GPU with what each holds, by process numbers of the host:
# in a container or a sandbox a process does not know its own. So the number is found by doing: the process that holds
# just so much more while some memory is allocated here, twice, is this one. Where NVML is absent, lists no process, or
# withholds what they hold, there is no answer.


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
