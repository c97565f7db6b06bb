"""Part of probe `late_work`: work on a stream that waits for the caller's, and that the caller's does not wait for.

A call is captured, as into a CUDA graph: nothing of it is executed. Where an event of the caller's stream has brought
another stream into the capture, and no event brings that one back, CUDA ends the capture with the error "unjoined",
however soon the work would have been done. No other error says anything: a kernel that waits for the GPU itself, or
allocates with cudaMalloc, cannot be captured and may be right.

Only what calls CUDA itself is captured, launchers and device kernels. Under Python and extensions lies torch's allocator:
a capture that it does not know of left processes that crashed later (on an H200, a kernel that lends memory to another
stream), and one by torch itself that fails leaves it in capture, in some versions for good. `usable` asks in any case.

It is evaded by work on a stream that never waited for the caller's, which is found only if it takes long enough, as
such of Python kernels is, and by a kernel that asks whether it is captured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from pytest_cgins.kernels import cuda_driver
from pytest_cgins.probes.raised import attempt
from pytest_cgins.probes.trial import Trial

CONTRACTS = ("launcher", "device")
"""Of kernels that are captured."""
UNJOINED = 904  # CUDA_ERROR_STREAM_CAPTURE_UNJOINED
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_…: other threads may do as they like


@dataclass(slots=True)
class Capture:
    """A capture that was ended."""

    status: int = 0
    """What CUDA said as it ended; 0 for a graph."""


@contextmanager
def capturing(device: str) -> Iterator[Capture]:
    """Capture what the body puts on the current stream; the graph is never launched.

    Raises:
        LaunchError: the capture cannot begin.
    """
    driver = cuda_driver.library()
    stream = ctypes.c_void_p(torch.cuda.current_stream(torch.device(device)).cuda_stream)
    cuda_driver.check(driver.cuStreamBeginCapture_v2(stream, _THREAD_LOCAL), "stream capture")
    capture = Capture()
    try:
        yield capture
    finally:
        graph = ctypes.c_void_p()
        capture.status = driver.cuStreamEndCapture(stream, ctypes.byref(graph))
        # Kept for good: events that the kernel holds may point into it.
        del graph


def observe(trial: Trial) -> dict[str, Any]:
    """Facts: whether a call leaves work that its caller's stream does not wait for; {} if that cannot be known."""
    with suppress(BaseException):  # a kernel that cannot be captured may raise anything, SystemExit too
        return {"unjoined": trial.captured() == UNJOINED}
    return {}


def usable(trial: Trial) -> bool:
    """Whether the process is as it was: memory can be allocated, and the kernel runs."""

    def once_more() -> list[torch.Tensor]:
        torch.empty(1, device=trial.device)
        return [] if trial.mutates else trial.rerun()

    # The first launch may still be told of an error that CUDA's runtime has kept for it.
    return any(attempt(once_more)[1] is None for _ in range(2))


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    if not facts.get("unjoined"):
        return ""
    return (
        "the kernel leaves work on another stream that the caller's stream does not wait for (captured into a CUDA "
        f"graph, the call ends with CUDA's error {UNJOINED}, unjoined): record an event behind that work, and let the "
        "caller's stream wait for it: cudaStreamWaitEvent, or wait_stream in Python"
    )
