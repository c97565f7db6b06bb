"""Which counters are asked of ncu, and the figures that they become, by axis and badness."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_cgins.regenerate.methods.definition import AXES, Axis
from pytest_cgins.regenerate.profiling.evidence_documents import MetricValue

_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SECTIONS: tuple[str, ...] = tuple(_DATA["sections"])
"""Sections of ncu: each version knows which counters of a chip belong to them."""
EXTRAS: tuple[tuple[str, ...], ...] = ((*_DATA["memory"], *_DATA["pipes"]), tuple(_DATA["memory"]), ())
"""Counters that are wanted besides, in the order in which they are tried: what a chip lacks is n/a, but there are
versions that refuse all counters for one whose name they do not know, and names of pipes differ most."""


TOP = 5
"""How many figures an axis are told first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure."""

    name: str
    """Ours."""
    axis: Axis
    """What it speaks of."""
    title: str
    """For a person."""
    unit: str
    """Of the value."""
    names: tuple[str, ...] = ()
    """Expressions that match the profiler's names, in the order in which they are tried; of several columns that one
    expression matches the greatest counts."""
    good: float | None = None
    """From here on it could hardly be better; None: it only describes."""
    bad: float | None = None
    """From here on it could hardly be worse; below `good` where more is better."""
    only_unit: str = ""
    """Unit that a column must have to be meant; "" for any."""

    def badness(self, value: float) -> float | None:
        """0 for good to 1 for bad, linear between both."""
        if self.good is None or self.bad is None:
            return None
        return min(1.0, max(0.0, (self.good - value) / (self.good - self.bad)))


_ACTIVE = r"\.avg\.pct_of_peak_sustained_(?:active|elapsed)"
*METRICS, BANK_CONFLICTS = (
    Metric(
        name=name, names=tuple(text.replace("{active}", _ACTIVE) for text in told.pop("names", ())), **told
    )
    for name, told in _DATA["metrics"].items()
)
DURATION = (r"gpu__time_duration\.(?:sum|avg|max)", r"Duration")


_STALL = re.compile(
    r"smsp__(?:average_)?warps?_issue_stalled_(?P<why>\w+?)_(?:per_issue_active\.ratio|per_warp_active\.pct)"
    r"|smsp__average_warp_latency_issue_stalled_(?P<older>\w+?)\.(?:ratio|pct)"
)
_LATENCY = (
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "smsp__average_warps_active_per_issue_active.ratio",
    "Warp Cycles Per Issued Instruction",
)
_PER_ISSUE = ("per_issue_active.ratio", "ratio")
_NOT_STALLED = re.compile(r"selected|\w+_not_issued")
_STALL_BAD_PCT = 50.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A column of ncu for one launch, in base units."""

    value: float
    unit: str


def understood(columns: Mapping[str, Reading]) -> tuple[MetricValue, ...]:
    """The figures that are in one launch's columns, by axis, the worst first."""
    matched = ((metric, _match(columns, metric.names, metric.only_unit)) for metric in METRICS)
    plain = [_value(metric, found[1].value, found[0]) for metric, found in matched if found is not None]
    found = [*plain, *_bank_conflicts(columns), *_stalls(columns)]
    return tuple(sorted(found, key=lambda one: (AXES.index(one.axis), -(one.badness or 0.0), one.name)))


def missing(metrics: Sequence[MetricValue]) -> tuple[str, ...]:
    """Names of the figures that were not to be had."""
    there = {metric.name for metric in metrics}
    return tuple(one.name for one in (*METRICS, BANK_CONFLICTS) if one.name not in there)


def worst(metrics: Sequence[MetricValue], most: int) -> tuple[MetricValue, ...]:
    """The worst figures of each axis, `most` of each; what only describes is none."""
    chosen: list[MetricValue] = []
    for axis in AXES:
        ranked = [metric for metric in metrics if metric.axis == axis and metric.badness]
        ranked.sort(key=lambda one: (-(one.badness or 0.0), one.name))
        chosen += ranked[:most]
    return tuple(chosen)


def duration_ns(columns: Mapping[str, Reading]) -> float | None:
    """How long the launch took; None if that is not told."""
    found = _match(columns, DURATION, "")
    return None if found is None else found[1].value


def _match(columns: Mapping[str, Reading], names: Sequence[str], unit: str) -> tuple[str, Reading] | None:
    for name in names:
        pattern = re.compile(name)
        fitting = [
            (column, reading)
            for column, reading in columns.items()
            if pattern.fullmatch(column) and (not unit or reading.unit in (unit, ""))
        ]
        if fitting:
            return max(fitting, key=lambda pair: pair[1].value)
    return None


def _bank_conflicts(columns: Mapping[str, Reading]) -> Iterator[MetricValue]:
    """Their share of all wavefronts; counted by loads and stores where no sum is reported."""
    conflicts = _sum(columns, r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared")
    wavefronts = _sum(columns, r"l1tex__data_pipe_lsu_wavefronts_mem_shared")
    if conflicts is not None and wavefronts is not None and wavefronts[0] > 0:
        yield _value(BANK_CONFLICTS, min(100.0, 100 * conflicts[0] / wavefronts[0]), conflicts[1])


def _sum(columns: Mapping[str, Reading], base: str) -> tuple[float, str] | None:
    whole = columns.get(f"{base}.sum")
    if whole is not None:
        return whole.value, f"{base}.sum"
    parts = [columns[name] for op in ("ld", "st") if (name := f"{base}_op_{op}.sum") in columns]
    return (sum(part.value for part in parts), f"{base}_op_*.sum") if parts else None


def _stalls(columns: Mapping[str, Reading]) -> Iterator[MetricValue]:
    """Reasons for warps to stall, each as a share of the cycles between two instructions of a warp."""
    latency = next((columns[name].value for name in _LATENCY if name in columns), 0.0)
    seen: set[str] = set()
    for column, reading in sorted(columns.items()):
        matched = _STALL.fullmatch(column)
        why = (matched["why"] or matched["older"]) if matched else ""
        if not why or why in seen or _NOT_STALLED.fullmatch(why):
            continue
        share = reading.value
        if column.endswith(_PER_ISSUE):
            whole = latency or _all_stalls(columns)
            share = 100 * share / whole if whole else 0.0
        seen.add(why)
        share = min(100.0, max(0.0, share))
        title = f"warps stalled: {why.replace('_', ' ')}"
        stall = Metric(
            name=f"stall_{why}_pct", axis="latency", title=title, unit="%", good=0.0, bad=_STALL_BAD_PCT
        )
        yield _value(stall, share, column)


def _all_stalls(columns: Mapping[str, Reading]) -> float:
    """Cycles between two instructions, where ncu gives only their parts."""
    return sum(
        reading.value
        for column, reading in columns.items()
        if _STALL.fullmatch(column) and column.endswith(_PER_ISSUE) and "_not_issued_" not in column
    )


def _value(metric: Metric, value: float, reported_as: str) -> MetricValue:
    return MetricValue(
        name=metric.name,
        axis=metric.axis,
        title=metric.title,
        value=value,
        unit=metric.unit,
        badness=metric.badness(value),
        reported_as=reported_as,
    )
