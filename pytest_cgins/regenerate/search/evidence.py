"""What profilers and times say of a candidate, as far as a search acts on it and a prompt tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods import near_peak
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.profiling import gaps as profiled_gaps
from pytest_cgins.regenerate.profiling import triggers
from pytest_cgins.regenerate.profiling.model import CaseProfile, MetricValue, TidyFinding

_MOST_KERNELS = 6
_MOST_FUNCTIONS = 6
_MOST_REMARKS = 6


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

    def text(self) -> str:
        """As a prompt says it: what is missing is said, too."""
        return "\n".join([*self.lines, *(f"not available: {line}" for line in self.degraded)])


def gathered(
    profile: CaseProfile,
    measured: Measurement | None,
    *,
    tidied: Sequence[TidyFinding] = (),
) -> Evidence:
    """What a profile and the times of the same case come to.

    Args:
        profile: of the candidate.
        measured: its times; None if it was not timed.
        tidied: what clang-tidy says of its sources.
    """
    roofline = measured.roofline if measured is not None else None
    counted = profiled_gaps.of_counters(profile.kernels)
    found = counted or (profiled_gaps.of_roofline(roofline) if roofline is not None else None)
    gaps = Gaps()
    if found is not None:
        latency = min(1.0, found.latency) if found.latency_known else None
        gaps = Gaps(compute=min(1.0, found.compute), memory=min(1.0, found.memory), latency=latency)
    peak = near_peak.near_peak(
        compute_share=roofline.share_of_compute if roofline is not None and roofline.flops else None,
        memory_share=roofline.share_of_bandwidth if roofline is not None else None,
        gaps=gaps if counted is not None else None,
    )
    return Evidence(
        case=profile.case,
        gaps=gaps,
        figures=triggers.figures(measured, profile),
        near_peak=peak.reason if peak.stop else "",
        lines=(*_lines(profile, gaps, peak.reason), *map(_remark, tidied[:_MOST_REMARKS])),
        degraded=profile.degraded,
    )


def _lines(profile: CaseProfile, gaps: Gaps, peak: str) -> list[str]:
    axes = ", ".join(
        f"{axis} {'no data' if gap is None else f'{gap:.2f}'}"
        for axis, gap in (("compute", gaps.compute), ("memory", gaps.memory), ("latency", gaps.latency))
    )
    lines = [f"case {profile.case}", f"gaps (0 at the peak, 1 at nothing): {axes}; {peak}"]
    lines += [
        f"launch {one.name}: grid {one.grid}, block {one.block}, {one.time_share:.0%} of the time"
        for one in profile.kernels[:_MOST_KERNELS]
    ]
    lines += [_figure(one) for one in profile.top]
    lines += [
        f"timeline: {one.name}: {one.count} × {one.ns_per_call / max(1, one.count) / 1e3:.2f} µs"
        for one in profile.timeline[:_MOST_KERNELS]
    ]
    for one in profile.functions[:_MOST_FUNCTIONS]:
        spills = one.spill_nbytes_per_thread
        told = "" if spills is None else f", {spills} B spilled"
        lines.append(f"ptxas: {one.function}: {counted(one.registers_per_thread, 'register')} a thread{told}")
    return lines


def _remark(one: TidyFinding) -> str:
    return f"clang-tidy: {one.file}:{one.line}: {one.message} [{one.check}]"


def _figure(one: MetricValue) -> str:
    return f"{one.axis}: {one.title}: {one.value:.4g} {one.unit}".rstrip()
