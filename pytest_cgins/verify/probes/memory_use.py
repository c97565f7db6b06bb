"""Probe `memory_use`: what a call takes beyond its inputs and outputs stays within bounds.

A kernel may take eight times its inputs and outputs, for copies in other layouts and precisions, split-K partial
sums and the like, and 256 MiB, for the workspaces of libraries; the first call a further GiB, since compilers and
autotuners work in it. Memory that a launcher asks for as its workspace counts. A kernel that precomputes tables
of all answers, or keeps those of every call it ever saw, needs more. Where a call seems to take too much, torch's own
is measured on the same inputs and device, by the worker that judges: a kernel may take as much besides. A transposed
convolution takes 720 MiB in torch itself where it moves 20.

On a CPU it is the peak of resident memory, from /proc; pages that are allocated and never touched are not seen,
and where /proc cannot be written nothing is. On a GPU it is the peak of torch's allocator, call by call, and what
this process holds besides once every set of inputs was run, by NVML: all calls together may leave as much as a
first call may take. The driver's count of free memory is of the whole GPU: a context that another process starts
looks like a kernel's table, and no repetition tells memory that is taken once from it. So it is not asked, and
where NVML does not tell what a process holds, memory that was taken by cudaMalloc and kept is left to
`memory_leak`. cudaMalloc and cudaFree within one call are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pytest_cgins.core.device import device_of
from pytest_cgins.verify.probe_support import memory

NAME = "memory_use"
FACTOR = 8
SLACK_NBYTES = 2**28
FIRST_NBYTES = 2**30


class Meter:
    """Measures what calls take; one a request."""

    def __init__(self, device: str, *, on: bool) -> None:
        self._device = device
        self._on = on
        self._begun = memory.held_beside_torch(device) if on and device_of(device).is_cuda else None
        self._largest = 0
        self._found: list[dict[str, Any]] = []
        self._later: dict[str, Any] = {}

    @contextmanager
    def call(self, when: Literal["bind", "first", "later"], name: str, moved_nbytes: int) -> Iterator[None]:
        """Around one call, or around the allocation of its inputs, outputs and workspace.

        Args:
            when: `bind` for that allocation.
            name: of the set of inputs.
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
        found = {"when": when, "set": name, "moved": moved_nbytes, "peak": most - begun}
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


def judge(facts: Sequence[dict[str, Any]], torchs: Callable[[str], int] = lambda _: 0) -> str:
    """What is wrong; "" if nothing is.

    Args:
        facts: as `Meter.facts` gives them.
        torchs: what torch itself takes beyond its inputs for the call on a set of inputs; asked on suspicion only.
    """
    for entry in sorted(facts, key=_excess, reverse=True):
        if _excess(entry) <= 0:
            break
        own = torchs(str(entry["set"])) if entry["when"] in ("first", "later") else 0
        if _excess(entry) > own:
            return _message(entry, own)
    return ""


def _excess(entry: dict[str, Any]) -> int:
    """Bytes by which a call exceeded its bound."""
    return _taken(entry) - _bound(entry)


def _taken(entry: dict[str, Any]) -> int:
    return int(entry["peak"]) - (int(entry["moved"]) if entry["when"] == "bind" else 0)


def _bound(entry: dict[str, Any]) -> int:
    first = FIRST_NBYTES if entry["when"] in ("first", "kept") else 0
    return FACTOR * int(entry["moved"]) + SLACK_NBYTES + first


def _message(entry: dict[str, Any], own: int) -> str:
    what = "what calls left on the GPU is" if entry["when"] == "kept" else "a call took"
    beside = f", and torch itself takes {_mib(own)}" if own else ""
    return (
        f"{what} {_mib(_taken(entry))} of memory beyond its inputs and outputs of {_mib(int(entry['moved']))}; "
        f"{_mib(_bound(entry) + own)} is the limit{beside}: look for buffers that do not depend on the call, or say in "
        "cgins.yaml why they are needed: probes: {memory_use: {off: REASON}}"
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
