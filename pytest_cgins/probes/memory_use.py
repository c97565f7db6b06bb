"""Probe `memory_use`: what a call takes beyond its inputs and outputs stays within bounds.

A kernel may take eight times its inputs and outputs, for copies in other layouts and precisions, split-K partial
sums and the like, and 256 MiB, for the workspaces of libraries; the first call a further GiB, since compilers and
autotuners work in it. Memory that a launcher asks for as its workspace counts. A kernel that precomputes tables
of all answers, or keeps those of every call it ever saw, needs more.

On a CPU it is the peak of resident memory, from /proc; pages that are allocated and never touched are not seen,
and where /proc cannot be written nothing is. On a GPU it is the peak of torch's allocator, call by call, and what
this process holds besides once every set of inputs was run, by NVML: all calls together may leave as much as a
first call may take. The driver's count of free memory is of the whole GPU: a context that another process starts
looks like a kernel's table, and no repetition tells memory that is taken once from it. So it is not asked, and
where NVML does not tell what a process holds, memory that was taken by cudaMalloc and kept is left to
`memory_leak`. cudaMalloc and cudaFree within one call are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pytest_cgins.probes import memory

NAME = "memory_use"
FACTOR = 8
SLACK_NBYTES = 2**28
FIRST_NBYTES = 2**30


class Meter:
    """Measures what calls take; one a request.

    Args:
        device: `cpu` or `cuda:0`.
        on: whether the probe is switched on.
    """

    def __init__(self, device: str, *, on: bool) -> None:
        self._device = device
        self._on = on
        self._begun = memory.held_beside_torch(device) if on and device.startswith("cuda") else None
        self._largest = 0
        self._found: list[dict[str, Any]] = []
        self._later: dict[str, Any] = {}

    @contextmanager
    def call(self, when: Literal["bind", "first", "later"], moved_nbytes: int) -> Iterator[None]:
        """Around one call, or around the allocation of its inputs, outputs and workspace.

        Args:
            when: `bind` for that allocation.
            moved_nbytes: inputs and outputs; 0 if nothing is to be measured.
        """
        if not (self._on and moved_nbytes):
            yield
            return
        self._largest = max(self._largest, moved_nbytes)
        begun = memory.begin_peak(self._device)
        yield
        most = memory.peak(self._device)
        if begun is None or most is None:
            return
        found = {"when": when, "moved": moved_nbytes, "peak": most - begun}
        if when != "later":
            self._found.append(found)
        elif found["peak"] > self._later.get("peak", -1):
            self._later = found  # the worst alone: a list that grows would look like a leak

    def all_ran(self) -> None:
        """Every set was run once, and none again: what is kept now is what single calls leave."""
        now = None if self._begun is None else memory.held_beside_torch(self._device)
        if now is not None and self._begun is not None and self._largest:
            self._found.append({"when": "kept", "moved": self._largest, "peak": now - self._begun})

    def facts(self) -> list[dict[str, Any]]:
        """What `judge` takes: one entry a call, one for the worst of those that were repeated, one for what was kept."""
        return [*self._found, self._later] if self._later else self._found


def judge(facts: Sequence[dict[str, Any]]) -> str:
    """What is wrong; "" if nothing is."""
    worst = max(map(_excess, facts), default=(0, ""))
    return worst[1] if worst[0] > 0 else ""


def _excess(entry: dict[str, Any]) -> tuple[int, str]:
    """By how many bytes a call passed its bound, and what is to be said of it."""
    moved = int(entry["moved"])
    bound = FACTOR * moved + SLACK_NBYTES + (FIRST_NBYTES if entry["when"] in ("first", "kept") else 0)
    taken = int(entry["peak"]) - (moved if entry["when"] == "bind" else 0)
    what = "what calls left on the GPU is" if entry["when"] == "kept" else "a call took"
    return taken - bound, (
        f"{what} {_mib(taken)} of memory beyond its inputs and outputs of {_mib(moved)}; {_mib(bound)} is the "
        "limit: look for buffers that do not depend on the call, or say in cgins.yaml why they are needed: "
        "probes: {memory_use: {off: REASON}}"
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
