"""Kernels of set lengths, compiled twice, and slower variants of them: what verdicts.py judges."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pytest_cgins.timing.cuda_timer import GraphTimer
from pytest_cgins.timing.devices.cuda import Cuda
from pytest_cgins.timing.rotation import plan

SOURCE = Path(__file__).with_name("work.cu")
KINDS = ("scale", "fma", "row_norm", "fma_wide")
"""`fma` is one block, whose latency is timed; `fma_wide` keeps all multiprocessors busy."""
ARITHMETIC = ("fma", "fma_wide")
TARGETS_US = {
    "scale": (9, 20, 60, 120, 250, 500),
    "fma": (1, 1.5, 2, 3, 4.5, 6),
    "fma_wide": (4, 12, 30, 90, 235, 400),
    "row_norm": (8, 16, 40, 80, 180, 350),
}
"""No shorter ones where the work of all multiprocessors cannot be raised by 5%."""
TRIALS = 8
LIMIT_S = 0.05
FMA_GROUPS = 256
COLUMNS = 256
MEMORY_BYTES = 24 * 2**30


@dataclass(frozen=True, slots=True)
class Subject:
    """One kernel, and how much work makes it slower by how much."""

    name: str
    """`fma-12us`."""
    kind: int
    """Index in `KINDS`."""
    groups: int
    """Groups of four numbers in a buffer."""
    work: int
    """What the kernel and its base are given."""
    slower: dict[str, int]
    """Work of planted slowdowns: `0.05` is 5%."""


def compile_twice(folder: Path) -> list[str]:
    """Two libraries of one source that differ in layout and digest."""
    paths = []
    for copy in (0, 1):
        path = folder / f"work{copy}.so"
        command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-arch=native", "-O3", f"-DCOPY={copy}"]
        subprocess.run([*command, str(SOURCE), "-o", str(path)], check=True)
        paths.append(str(path))
    return paths


class Library:
    """One of the two."""

    def __init__(self, path: str) -> None:
        self._launch = ctypes.CDLL(path).launch
        self._launch.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_long] * 2, ctypes.c_void_p]

    def arm(
        self, kind: int, groups: int, work: int, tensors: Sequence[torch.Tensor]
    ) -> Callable[[int], None]:
        """An arm on some copies of its tensors."""
        pointers = [(one[0].data_ptr(), one[1].data_ptr()) for one in tensors]

        def run(index: int) -> None:
            source, target = pointers[index]
            status = self._launch(kind, source, target, groups, work, torch.cuda.current_stream().cuda_stream)
            assert status == 0, status

        return run


def tensors_of(groups: int) -> list[torch.Tensor]:
    """Copies of source and target, as many as the gate would take; the kernel and its base run on the same."""
    cache = Cuda().last_level_cache_nbytes()
    copies = plan(2 * 16 * groups, cache, memory_bytes=MEMORY_BYTES // 4, contents=2).copies
    return [torch.rand(2, 4 * groups, device="cuda") for _ in range(copies)]


def timer_of(kernel: Library, base: Library, subject: Subject, work: int) -> GraphTimer:
    """The gate's timer on a subject with some work, and its base."""
    tensors = tensors_of(subject.groups)
    arms = {
        "kernel": kernel.arm(subject.kind, subject.groups, work, tensors),
        "base": base.arm(subject.kind, subject.groups, subject.work, tensors),
    }
    timer = GraphTimer(arms, copies=len(tensors), limit_s=LIMIT_S)
    timer.tensors = tensors  # type: ignore[attr-defined]  # they must outlive it
    return timer


# ---- how much work takes how long


def make_subjects(libraries: list[Library], slowdowns: tuple[float, ...], only: str) -> list[dict[str, Any]]:
    """Subjects for all targets, or those of a name, with the work of each slowdown found by trial."""
    return [
        asdict(_subject(libraries, kind, target, slowdowns))
        for kind, name in enumerate(KINDS)
        for target in TARGETS_US[name]
        if re.search(only, f"{name}-{target:g}us")
    ]


def _subject(libraries: list[Library], kind: int, target_us: float, slowdowns: tuple[float, ...]) -> Subject:
    step = COLUMNS if KINDS[kind] == "row_norm" else 1
    computes = KINDS[kind] in ARITHMETIC
    groups = FMA_GROUPS if computes else 64 * step
    work = 64 if computes else groups

    for _ in range(7):
        seconds = _seconds(libraries[0], kind, groups, work)
        scale = target_us * 1e-6 / seconds
        if abs(scale - 1) < 0.03:
            break
        work = max(step, round(work * min(scale, 64.0) / step) * step)
        groups = groups if computes else math.ceil(work * 1.3 / step) * step
    subject = Subject(f"{KINDS[kind]}-{target_us:g}us", kind, groups, work, {})
    slower = {f"{one:g}": _slower(libraries, subject, one, step) for one in slowdowns}
    return Subject(subject.name, kind, groups, work, slower)


def _slower(libraries: list[Library], subject: Subject, slowdown: float, step: int) -> int:
    """The work that takes longer by a share, or by a little more."""
    work, least, most = round(subject.work * (1 + slowdown)), subject.work, None
    for _ in range(TRIALS):
        work = max(subject.work + step, round(work / step) * step)
        found = _ratio(libraries, subject, work) - 1
        if 1.01 * slowdown <= found <= 1.06 * slowdown:
            break
        least, most = (max(least, work), most) if found < slowdown else (least, min(most or work, work))
        if most is not None and most - least <= step:
            return most
        more = (work - subject.work) * 1.03 * slowdown / max(found, slowdown / 4)
        guess = subject.work + round(more)
        work = guess if most is None or least < guess < most else (least + most) // 2
        work = min(work, round(subject.groups * 0.99)) if KINDS[subject.kind] not in ARITHMETIC else work
    return work


def _seconds(library: Library, kind: int, groups: int, work: int) -> float:
    tensors = tensors_of(groups)
    arms = {"kernel": library.arm(kind, groups, work, tensors)}
    timer = GraphTimer(arms, copies=len(tensors), limit_s=LIMIT_S)
    times = [time for block in timer.blocks([("kernel", "kernel")] * 4) for time in block]
    return median(times) * 1e-9


def _ratio(libraries: list[Library], subject: Subject, work: int) -> float:
    """Over both ways of compiling, so that the planted share is not one copy's luck."""
    logs = []
    for kernel, base in (libraries, libraries[::-1]):
        timer = timer_of(kernel, base, subject, work)
        for k1, b1, b2, k2 in timer.blocks([("kernel", "base", "base", "kernel")] * 24):
            logs.append((math.log(k1) + math.log(k2) - math.log(b1) - math.log(b2)) / 2)
    half = len(logs) // 2
    return math.exp((median(logs[:half]) + median(logs[half:])) / 2)
