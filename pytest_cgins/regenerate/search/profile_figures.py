"""What profilers and times say of a candidate, as far as a search acts on it and a prompt tells it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.number_text import gflops
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods import axis_budget
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.profiling import analysis, rooflines
from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile, ProfiledKernel, TidyFinding
from pytest_cgins.regenerate.profiling.profile import main_kernel

_MOVED = ("dram__bytes_read.sum", "dram__bytes_write.sum")


def figures(
    measured: Measurement | None, profile: CaseProfile | None, *, sm_count: int = 0
) -> dict[str, float]:
    """All that is known of one case; what is not known is missing, and never 0.

    Args:
        measured: its times, with its roofline.
        profile: of the same build and case. Of several launches the longest counts.
        sm_count: multiprocessors of the device; 0 if that is not known.
    """
    found = _of_times(measured) if measured is not None else {}
    if profile is None:
        return found
    registers = max((function.registers_per_thread for function in profile.functions), default=0)
    found |= {"registers_per_thread": float(registers)} if registers else {}
    if profile.functions:
        found["local_nbytes"] = max(function.stack_nbytes_per_thread for function in profile.functions)
        spills = (function.spill_nbytes_per_thread for function in profile.functions)
        if known := [nbytes for nbytes in spills if nbytes is not None]:
            found["spill_nbytes"] = float(max(known))
    if profile.timeline:
        found["launches_per_call"] = float(sum(one.count for one in profile.timeline))
    if profile.kernels:
        main = main_kernel(profile.kernels)
        found["launches_per_call"] = float(len(profile.kernels))
        found |= main.raw
        found |= {metric.name: metric.value for metric in main.metrics}
        found |= _moved(profile, measured) | _blocks(main, sm_count)
    return found


def _of_times(measured: Measurement) -> dict[str, float]:
    found = {"us_per_call": measured.kernel.median_ns_per_call / 1e3}
    if measured.kernel.host_ns_per_call is not None:
        found["host_us_per_call"] = measured.kernel.host_ns_per_call / 1e3
    if measured.roofline is not None:
        found["share_of_bandwidth"] = measured.roofline.share_of_bandwidth
        found["share_of_compute"] = measured.roofline.share_of_compute
    return found


def _blocks(main: ProfiledKernel, sm_count: int) -> dict[str, float]:
    sizes = [int(size) for size in re.findall(r"\d{1,10}", main.grid)]
    return {"blocks_per_sm": math.prod(sizes) / sm_count} if sizes and sm_count else {}


def _moved(profile: CaseProfile, measured: Measurement | None) -> dict[str, float]:
    """Bytes that memory moved over those that the call must move."""
    needed = measured.roofline.nbytes if measured is not None and measured.roofline is not None else 0
    if not needed or not all(name in kernel.raw for kernel in profile.kernels for name in _MOVED):
        return {}
    moved = sum(kernel.raw[name] for kernel in profile.kernels for name in _MOVED)
    return {"bytes_over_minimum": moved / needed}


_MOST_TOLD = 6
"""Kernels, functions and remarks that a prompt is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Document):
    """Of one candidate, on its heaviest case."""

    case: str
    """Name of the case."""
    gaps: Gaps
    """How far it is from the peaks, an axis; None where nobody measured."""
    figures: dict[str, float] = field(default_factory=dict)
    """By the names that triggers of methods have."""
    near_peak: str = ""
    """Why there is little left to win; "" where there is."""
    lines: tuple[str, ...] = ()
    """For a prompt."""
    degraded: tuple[str, ...] = ()
    """What could not be had, and why."""
    report: str = ""
    """Name of ncu's report beside it; "" without one."""
    analysis: str = ""
    """The profile as markdown; the journal keeps it in a file of its own."""

    def text(self) -> str:
        """As a prompt says it: what is missing is said, too."""
        return "\n".join([*self.lines, *(f"not available: {line}" for line in self.degraded)])


def gathered(
    profile: CaseProfile,
    measured: Measurement | None,
    *,
    tidied: Sequence[TidyFinding] = (),
    sm_count: int = 0,
) -> Evidence:
    """What a profile and the times of the same case come to.

    Args:
        profile: of the candidate.
        measured: its times; None if it was not timed.
        tidied: what clang-tidy says of its sources.
        sm_count: as of `figures`.
    """
    roofline = measured.roofline if measured is not None else None
    found = rooflines.gaps(profile, roofline)
    gaps = found.measured() if found is not None else Gaps()
    peak = axis_budget.near_peak(
        compute_share=roofline.share_of_compute if roofline is not None and roofline.flops else None,
        memory_share=roofline.share_of_bandwidth if roofline is not None else None,
        gaps=gaps if found is not None and found.source == "ncu" else None,
    )
    rate = (
        roofline.gflops(measured.kernel.median_ns_per_call)
        if measured is not None and roofline is not None
        else None
    )
    reached = peak.reason if rate is None else f"{peak.reason}, {gflops(rate)}"
    return Evidence(
        case=profile.case,
        gaps=gaps,
        figures=figures(measured, profile, sm_count=sm_count),
        near_peak=reached if peak.stop else "",
        lines=(
            *_lines(profile, gaps, reached),
            *(
                f"clang-tidy: {one.file}:{one.line}: {one.message} [{one.check}]"
                for one in tidied[:_MOST_TOLD]
            ),
        ),
        degraded=profile.degraded,
        report=profile.report,
        analysis=analysis.page(profile, measured).markdown(),
    )


def _lines(profile: CaseProfile, gaps: Gaps, peak: str) -> list[str]:
    axes = ", ".join(
        f"{axis} {'no data' if gap is None else f'{gap:.2f}'}"
        for axis, gap in (("compute", gaps.compute), ("memory", gaps.memory), ("latency", gaps.latency))
    )
    lines = [f"case {profile.case}", f"gaps (0 at the peak, 1 at nothing): {axes}; {peak}"]
    lines += [
        f"launch {kernel.name}: grid {kernel.grid}, block {kernel.block}, {kernel.time_share:.0%} of the time"
        for kernel in profile.kernels[:_MOST_TOLD]
    ]
    lines += [f"{one.axis}: {one.title}: {one.value:.4g} {one.unit}".rstrip() for one in profile.top]
    lines += [
        f"timeline: {one.name}: {one.count} × {one.ns_per_call / max(1, one.count) / 1e3:.2f} µs"
        for one in profile.timeline[:_MOST_TOLD]
    ]
    for one in profile.functions[:_MOST_TOLD]:
        spills = one.spill_nbytes_per_thread
        told = "" if spills is None else f", {spills} B spilled"
        lines.append(f"ptxas: {one.function}: {counted(one.registers_per_thread, 'register')} a thread{told}")
    return lines
