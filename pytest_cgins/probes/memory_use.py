"""Probe `memory_use`: what a call takes beyond its inputs and outputs stays within bounds.

A kernel may take eight times its inputs and outputs, for copies in other layouts and precisions, split-K partial
sums and the like, and 256 MiB, for the workspaces of libraries; the first call a further GiB, since compilers and
autotuners work in it. Memory that a launcher asks for as its workspace counts. A kernel that precomputes tables
of all answers, or keeps those of every call it ever saw, needs more.

On a CPU it is the peak of resident memory, from /proc; pages that are allocated and never touched are not seen,
and where /proc cannot be written nothing is. On a GPU it is the peak of torch's allocator, and what is missing of
the GPU's free memory after the call: cudaMalloc and cudaFree within one call are not seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pytest_cgins.probes import memory

NAME = "memory_use"
FACTOR = 8
SLACK_NBYTES = 2**28
FIRST_NBYTES = 2**30
LONGEST_S = 0.5
"""A window in which another process's memory could be taken for the kernel's: after it the driver is not asked."""


class Meter:
    """Measures what calls take; one a request.

    Args:
        device: `cpu` or `cuda:0`.
        on: whether the probe is switched on.
    """

    def __init__(self, device: str, *, on: bool) -> None:
        self._device = device
        self._on = on
        self._found: list[dict[str, Any]] = []

    @contextmanager
    def call(self, when: Literal["bind", "first", "later"], moved_nbytes: int) -> Iterator[None]:
        """Around calls on one set of inputs, or around the allocation of its inputs, outputs and workspace.

        Args:
            when: `bind` for that allocation.
            moved_nbytes: inputs and outputs; 0 if nothing is to be measured.
        """
        if not (self._on and moved_nbytes):
            yield
            return
        on_gpu = self._device.startswith("cuda")
        taken = memory.driver_in_use(self._device) if on_gpu else 0
        begun = memory.begin_peak(self._device)
        start = time.monotonic()
        yield
        most = memory.peak(self._device)
        found: dict[str, Any] = {"when": when, "moved": moved_nbytes}
        if begun is not None and most is not None:
            found["peak"] = most - begun
        if on_gpu and time.monotonic() - start < LONGEST_S:
            found["driver"] = memory.driver_in_use(self._device) - taken
        self._found.append(found)

    def facts(self) -> list[dict[str, Any]]:
        """What `judge` takes: one entry a call."""
        return self._found


def judge(facts: Sequence[dict[str, Any]]) -> str:
    """What is wrong; "" if nothing is."""
    worst = max(map(_excess, facts), default=(0, ""))
    return worst[1] if worst[0] > 0 else ""


def _excess(entry: dict[str, Any]) -> tuple[int, str]:
    """By how many bytes a call passed its bound, and what is to be said of it."""
    moved = int(entry["moved"])
    bound = FACTOR * moved + SLACK_NBYTES + (FIRST_NBYTES if entry["when"] == "first" else 0)
    taken = max(int(entry.get("peak", 0)), int(entry.get("driver", 0))) - (
        moved if entry["when"] == "bind" else 0
    )
    return taken - bound, (
        f"a call took {_mib(taken)} of memory beyond its inputs and outputs of {_mib(moved)}; {_mib(bound)} is the "
        "limit: look for buffers that do not depend on the call, or say in cgins.yaml why they are needed: "
        "probes: {memory_use: {off: REASON}}"
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
