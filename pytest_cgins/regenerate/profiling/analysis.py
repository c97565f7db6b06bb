"""A profile as a person reads it: launch by launch what bounds it, which gap is the largest, and what ncu advises."""

from __future__ import annotations

from functools import partial

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.number_text import gflops, percent, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.definition import AXES, Axis
from pytest_cgins.regenerate.profiling import metrics, rooflines
from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile, ProfiledKernel
from pytest_cgins.regenerate.profiling.metrics import TOP
from pytest_cgins.regenerate.profiling.render import opcodes
from pytest_cgins.regenerate.sections import NOTHING, Page, Section, known, section

MOST_SHOWN = 8
"""Launches and functions that have rows; those that take most of the time."""
_BOUND: dict[Axis | None, str] = {
    "memory": "Memory bounds it",
    "compute": "Compute bounds it",
    "latency": "It waits: it is far from the peaks of memory and of compute",
    None: "What bounds it is not known",
}
Launch = tuple[int, ProfiledKernel, Gaps]
"""Its place in the call, from 1, and its gaps."""


def page(profile: CaseProfile, measured: Measurement | None = None, *, top: int = TOP) -> Page:
    """What is known of one case.

    Args:
        profile: of it.
        measured: its times; None if it was not timed.
        top: how many figures an axis are shown of each launch.
    """
    roofline = measured.roofline if measured is not None else None
    gaps = rooflines.gaps(profile, roofline)
    launches = [(number, kernel, _gaps(kernel)) for number, kernel in enumerate(profile.kernels, 1)]
    launches = sorted(launches, key=lambda one: -one[1].time_share)[:MOST_SHOWN]
    code = (_timeline(profile), _functions(profile))
    return Page(
        of=("profile", profile.case),
        opening=_opening(gaps.measured() if gaps is not None else Gaps()),
        facts=_facts(profile, measured),
        sections=(*_launches(launches, top), *(one for one in code if one.rows), _remarks(profile)),
    )


def _opening(gaps: Gaps) -> str:
    largest, leading = gaps.largest(), gaps.leading()
    gap = "" if largest is None else f"; its largest gap is {largest}, {gaps.of(largest):.2f}"
    return f"{_BOUND[gaps.bound()]}{gap}{'' if leading is None else f'; most is to be won in {leading}'}."


def _gaps(kernel: ProfiledKernel) -> Gaps:
    found = rooflines.of_counters([kernel])
    return found.measured() if found is not None else Gaps()


def _facts(profile: CaseProfile, measured: Measurement | None) -> list[tuple[str, str]]:
    facts = []
    if measured is not None:
        ns = measured.kernel.median_ns_per_call
        facts.append(("time", time_ns(ns)))
        if (found := measured.roofline) is not None:
            work = f"{counted(found.nbytes, 'byte', grouped=True)}, {counted(found.flops, 'operation', grouped=True)}"
            rate = known(found.gflops(ns), gflops)
            shares = f"{percent(found.share_of_bandwidth)} of bandwidth, {percent(found.share_of_compute)} of compute"
            facts += [("work", work), ("rate", rate), ("peak", shares)]
    facts += [("report", profile.report)] if profile.report else []
    return facts


def _launches(launches: list[Launch], top: int) -> tuple[Section, ...]:
    """One a row; then the worst figures of each, and what ncu advises."""
    if not launches:
        return ()
    figures = [(number, one) for number, kernel, _ in launches for one in metrics.worst(kernel.metrics, top)]
    advice = [(number, line) for number, kernel, _ in launches for line in kernel.suggested]
    return (
        section(
            "Launches",
            launches,
            {
                "launch": lambda one: str(one[0]),
                "kernel": lambda one: one[1].name,
                "grid": lambda one: one[1].grid,
                "block": lambda one: one[1].block,
                "time": lambda one: known(one[1].ns, time_ns),
                "share": lambda one: percent(one[1].time_share),
                **{f"{axis} gap": partial(_gap, axis) for axis in AXES},
                "bound by": lambda one: one[2].bound() or NOTHING,
                "largest gap": lambda one: one[2].largest() or NOTHING,
            },
            foreign=("kernel", "grid", "block"),
            notes=("A gap of 0 is at the peak, 1 at nothing. Times under ncu exceed those without it.",),
        ),
        section(
            "Worst figures",
            figures,
            {
                "launch": lambda one: str(one[0]),
                "axis": lambda one: one[1].axis,
                "figure": lambda one: one[1].title,
                "value": lambda one: f"{one[1].value:.4g} {one[1].unit}",
                "badness": lambda one: f"{one[1].badness or 0:.2f}",
            },
            empty="There is none.",
            foreign=("figure",),
            notes=("Badness is 0 for good, 1 for as bad as it matters.",),
        ),
        section(
            "What ncu suggests",
            advice,
            {"launch": lambda one: str(one[0]), "advice": lambda one: one[1]},
            empty="Nothing.",
            foreign=("advice",),
        ),
    )


def _gap(axis: Axis, one: Launch) -> str:
    return known(one[2].of(axis), "{:.2f}".format)


def _timeline(profile: CaseProfile) -> Section:
    return section(
        "Timeline",
        profile.timeline[:MOST_SHOWN],
        {
            "kernel": lambda one: one.name,
            "launches": lambda one: str(one.count),
            "time": lambda one: time_ns(one.ns_per_call),
            "grid": lambda one: one.grid,
            "block": lambda one: one.block,
            "registers": lambda one: known(one.registers_per_thread, str),
            "occupancy": lambda one: known(one.occupancy_pct, "{:.0f}%".format),
        },
        foreign=("kernel", "grid", "block"),
    )


def _functions(profile: CaseProfile) -> Section:
    more = len(profile.functions) - MOST_SHOWN
    return section(
        "Machine code",
        profile.functions[:MOST_SHOWN],
        {
            "function": lambda one: one.function,
            "arch": lambda one: one.arch,
            "registers": lambda one: str(one.registers_per_thread or NOTHING),
            "spilled bytes": lambda one: known(one.spill_nbytes_per_thread, str),
            "stack": lambda one: str(one.stack_nbytes_per_thread),
            "shared bytes": lambda one: str(one.static_shared_nbytes_per_block),
            "opcodes": lambda one: opcodes(one.instructions),
        },
        foreign=("function", "arch", "opcodes"),
        notes=(f"and {counted(more, 'more function')}",) if more > 0 else (),
    )


def _remarks(profile: CaseProfile) -> Section:
    degraded = (f"not available: {line}" for line in profile.degraded)
    return Section(title="Remarks", notes=(*profile.compiler, *profile.notes, *degraded) or ("None.",))
