"""The recorded calls of an op, for somebody who must write it: each distinct one once, the rest counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytest_cgins.core.model import Argument, Trace
from pytest_cgins.core.text import counted
from pytest_cgins.packs.store import PackReader
from pytest_cgins.regenerate.prompts import blocks, calls, values
from pytest_cgins.regenerate.prompts.context import Context

MOST_CASES = 12
_MOST_LISTED = 8
_MOST_CALLS = 400
_MOST_KERNELS = 6


@dataclass(slots=True)
class Group:
    """Calls that differ in their dtype at most."""

    varying: str
    """What it passes and gives, without what is the same in all calls."""
    facts: tuple[str, ...]
    """About memory and context."""
    dtypes: dict[str, None]
    """Data types, as met."""
    traces: list[tuple[PackReader, Trace]]
    """Its traces."""
    count: int = 0
    """Calls in the recorded runs."""
    failing: dict[str, None] = field(default_factory=dict)
    """Data types in which the gate fails it."""
    time_share: float = 0.0
    """Of the packs' time, by their profiles; 0 without."""


def described(context: Context) -> str:
    """All about the calls: signature, cases, statistics, profile."""
    traces = context.traces
    if not traces:
        return blocks.section("Recorded calls", ["No call of this op is recorded."])
    common = _common([trace for _, trace in traces])
    shown = _ordered(_groups(context, traces, common))
    lines = [
        (
            f"The op was called {counted(sum(trace.count for _, trace in traces), 'time')}, in "
            f"{counted(len(traces), 'distinct way')}; every one is a "
            "case that the kernel must pass. `T` stands for each of the element types that are "
            "listed; tensors are contiguous "
            "(row-major) unless strides are given, in elements."
        ),
        blocks.data("Calls", "\n".join(_listing(shown, common, [trace for _, trace in traces]))),
    ]
    statistics = values.described(traces, shown[0].traces if shown else [])
    if statistics:
        lines.append(blocks.data("What is in the recorded inputs", statistics))
    profile = _profile(context, shown)
    if profile:
        lines.append(blocks.data("What torch runs for it", profile))
    return blocks.section("Recorded calls", lines)


def _common(traces: Sequence[Trace]) -> dict[str, str]:
    """Plain arguments that have one value in all calls."""
    seen: dict[str, set[str]] = {}
    for trace in traces:
        for argument in calls.arguments(trace):
            seen.setdefault(argument.name, set()).add(_key(argument, trace))
    everywhere = {
        name
        for name in seen
        if all(any(one.name == name for one in trace.call.arguments) for trace in traces)
    }
    first = traces[0]
    return {
        argument.name: calls.plain(argument.value, first.tensors)
        for argument in calls.arguments(first)
        if argument.name in everywhere
        and not argument.name.startswith("_")
        and len(seen[argument.name]) == 1
        and not any(True for _ in calls.tensor_indices(argument.value))
    }


def _key(argument: Argument, trace: Trace) -> str:
    return calls.plain(argument.value, trace.tensors)


def _groups(
    context: Context, traces: Iterable[tuple[PackReader, Trace]], common: dict[str, str]
) -> list[Group]:
    failing = {
        (one.case.pack, one.case.trace_id)
        for one in context.evaluations
        if one.verdict.status.outcome == "fail"
    }
    found: dict[tuple[str, tuple[str, ...]], Group] = {}
    for pack, trace in traces:
        varying, facts = _written(trace, common), tuple(calls.facts(trace))
        group = found.setdefault((varying, facts), Group(varying, facts, {}, []))
        group.dtypes.setdefault(trace.dtype)
        group.traces.append((pack, trace))
        group.count += trace.count
        if (pack.pack.name, trace.id) in failing:
            group.failing.setdefault(trace.dtype)
        profile = context.profile_of(pack.pack.name, trace.id)
        group.time_share += profile.time_share if profile else 0.0
    return list(found.values())


def _written(trace: Trace, common: dict[str, str]) -> str:
    stand_in = trace.dtype if trace.dtype not in ("none", "int64", "bool") else ""
    passed = [
        f"{blocks.one_line(argument.name, 60)}={calls.plain(argument.value, trace.tensors, stand_in)}"
        for argument in calls.arguments(trace)
        if argument.name not in common and not argument.name.startswith("_")
    ]
    return blocks.one_line(f"{', '.join(passed)} → {calls.outputs(trace, stand_in)}", _MOST_CALLS)


def _ordered(groups: list[Group]) -> list[Group]:
    """Failing ones first, then by share of time, calls and size."""

    def weight(group: Group) -> tuple[bool, float, int, int, str]:
        largest = max(calls.nbytes(trace) for _, trace in group.traces)
        return (not group.failing, -group.time_share, -group.count, -largest, group.varying)

    return sorted(groups, key=weight)


def _listing(groups: Sequence[Group], common: dict[str, str], traces: Sequence[Trace]) -> list[str]:
    lines = []
    if common:
        lines.append(
            "in every call: "
            + ", ".join(f"{blocks.one_line(name, 60)}={value}" for name, value in common.items())
        )
    everywhere = groups[0].facts if len({group.facts for group in groups}) == 1 else ()
    if everywhere:
        lines.append(f"of every call: {'; '.join(everywhere)}")
    for number, group in enumerate(groups[:MOST_CASES], 1):
        dtypes = ", ".join(calls.SHORT.get(one, one) for one in group.dtypes)
        failing = [calls.SHORT.get(one, one) for one in group.failing]
        mark = f"  <- FAILS for {', '.join(failing)}" if failing else ""
        lines.append(f"{number}. T: {dtypes}; {counted(group.count, 'call')}{mark}")
        lines.append(f"   {group.varying}")
        if group.facts and not everywhere:
            lines.append(f"   ({'; '.join(group.facts)})")
    if len(groups) > MOST_CASES:
        lines += _rest(groups[MOST_CASES:])
    lengths = sorted({size for trace in traces for length in trace.lengths for size in length.sizes})
    if lengths:
        lines.append(
            f"one size grows from call to call (a cache): {lengths[0]} to {lengths[-1]}, {counted(len(lengths), 'size')} met"
        )
    return lines


def _rest(groups: Sequence[Group]) -> list[str]:
    """How many more there are, and between which sizes their first tensors lie."""
    traces = [trace for group in groups for _, trace in group.traces]
    dtypes = sorted({calls.SHORT.get(trace.dtype, trace.dtype) for trace in traces})
    lines = [
        f"and {len(groups)} more, {counted(sum(group.count for group in groups), 'call')}, T: {', '.join(dtypes)}:"
    ]
    by_rank: dict[int, list[tuple[int, ...]]] = {}
    for trace in traces:
        if trace.tensors:
            by_rank.setdefault(len(trace.tensors[0].shape), []).append(trace.tensors[0].shape)
    for _, shapes in sorted(by_rank.items())[:_MOST_LISTED]:
        spans = [
            f"{min(sizes)}…{max(sizes)}" if min(sizes) != max(sizes) else str(min(sizes))
            for sizes in zip(*shapes, strict=True)
        ]
        lines.append(f"   first tensor [{', '.join(spans)}]")
    return lines


def _profile(context: Context, groups: Sequence[Group]) -> str:
    """ATen calls and CUDA kernels of the calls that take the most time."""
    lines: list[str] = []
    for number, group in enumerate(groups[:3], 1):
        for pack, trace in group.traces:
            profile = context.profile_of(pack.pack.name, trace.id)
            if profile is None:
                continue
            lines.append(
                f"call {number} ({calls.SHORT.get(trace.dtype, trace.dtype)}): "
                f"{profile.median_ns_per_call / 1e3:.4g} µs a call "
                f"in torch, {profile.time_share:.1%} of its model's profile"
            )
            aten = [
                f"{one.name}×{one.count}" + (" (view)" if one.view else "")
                for one in profile.aten[:_MOST_LISTED]
            ]
            lines.append(f"   ATen: {', '.join(blocks.one_line(one, 100) for one in aten) or 'none'}")
            for kernel in profile.kernels[:_MOST_KERNELS]:
                name = blocks.one_line(kernel.name, 140)
                lines.append(f"   CUDA: {name} ×{kernel.count}, {kernel.ns_per_call / 1e3:.4g} µs")
            break
    return "\n".join(lines)
