"""Probe `l2_carve_out`: a kernel sets no part of the GPU's L2 aside.

Lines in a persisting carve-out stay through everything that is written between calls, so that a kernel's data are
found in the cache although the copies that it is timed on outrun it; and torch's arm is left with less cache.

The limit of the context is read as soon as the kernel was loaded. What is found there at other times may be others'
doing: on an H200 it was 11,796,480 bytes in 4 of 75 cases of kernels that never speak of it. So the kernel runs once
before it is timed, upon which the limit is 0 again, and once after it was timed, on a stream of its own, between a
limit of 0 and a look at the limit and at the stream's access-policy window.

A kernel that resets the limit before it returns is not seen, and one that sets it in its first call alone is not
accused; neither is timed with a carve-out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from pytest_cgins.building.loading import cuda_driver as driver
from pytest_cgins.core.device import device_of
from pytest_cgins.core.text import counted

NAME = "l2_carve_out"
_PERSISTING_L2_NBYTES = 0x06  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_ACCESS_POLICY_WINDOW = 1  # CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
_PERSISTING = 2  # CU_ACCESS_PROPERTY_PERSISTING


class _Window(ctypes.Structure):
    """CUaccessPolicyWindow, within a CUstreamAttrValue of 64 bytes."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit_property", ctypes.c_int),
        ("miss_property", ctypes.c_int),
        ("padding", ctypes.c_char * 36),
    )


class CarveOut:
    """Looks at one GPU's L2; on a CPU there is nothing to look at. Made before the kernel is loaded."""

    def __init__(self, device: str, *, on: bool) -> None:
        self._device = device
        self._on_gpu = device_of(device).is_cuda
        self._on = on and self._on_gpu
        self._found: dict[str, int] = {"limit": 0, "window": 0}
        self.clear()

    def loaded(self) -> None:
        """Note what the kernel has set as it was loaded."""
        if self._on:
            self._found["limit"] = _limit()
            self.clear()

    def clear(self) -> None:
        """Give all of the cache back."""
        if self._on and _limit():
            driver.library().cuCtxSetLimit(_PERSISTING_L2_NBYTES, ctypes.c_size_t(0))
            driver.library().cuCtxResetPersistingL2Cache()

    def settle(self, call: Callable[[], object]) -> None:
        """Run a call that waits for its end, so that what is set in a first call alone is set, and given back."""
        if self._on:
            call()
            self.clear()

    def called(self, call: Callable[[], object]) -> None:
        """Run a call that waits for its end, and note what it has set."""
        if not self._on:
            return
        self.clear()
        with torch.cuda.stream(torch.cuda.Stream(torch.device(self._device))):  # type: ignore[no-untyped-call]
            call()
            self._found["limit"] = max(self._found["limit"], _limit())
            self._found["window"] = _take_window()
        self.clear()

    def facts(self) -> dict[str, Any]:
        """What `judge` takes."""
        return self._found if self._on_gpu else {"not_run": "a CPU has no carve-out of its caches"}


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    limit, window = int(facts.get("limit", 0)), int(facts.get("window", 0))
    if not (limit or window):
        return ""
    memory = f"a window of {counted(window, 'persisting byte', grouped=True)}"
    if limit:
        memory = f"{counted(limit, 'byte', grouped=True)} of the L2"
    return (
        f"the kernel set {memory} aside for itself, which outlives its calls: what it leaves there is found again "
        "however much is written between"
    )


def _limit() -> int:
    value = ctypes.c_size_t()
    status = driver.library().cuCtxGetLimit(ctypes.byref(value), _PERSISTING_L2_NBYTES)
    return 0 if status else value.value  # GPUs without carve-outs know no such limit


def _take_window() -> int:
    """Bytes of the current stream's persisting window, which is taken back: torch hands its streams out again."""
    window = _Window()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    status = driver.library().cuStreamGetAttribute(stream, _ACCESS_POLICY_WINDOW, ctypes.byref(window))
    if status or window.hit_property != _PERSISTING:
        return 0
    nothing = _Window()
    driver.library().cuStreamSetAttribute(stream, _ACCESS_POLICY_WINDOW, ctypes.byref(nothing))
    return int(window.nbytes)
