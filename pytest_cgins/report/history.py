"""One line of a history of times: what a case took on a commit, and under which keys. Trends only, never gates.

Times are in nanoseconds a call. A ratio is time over time: above 1 the kernel takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.environment_key import Key, hard_key, soft_key
from pytest_cgins.core.measurement import ArmName, Comparison, Measurement, Method
from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport
from pytest_cgins.core.verdict import Status

HISTORY_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(Document):
    """What was checked out."""

    commit: str
    """40 hex digits; "" where git does not tell."""
    dirty: bool
    """Whether tracked files differed from it."""
    branch: str
    """Branch that the run was on; "" if on none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(Document):
    """The kernel's time over another arm's."""

    ratio: float
    """Median over blocks."""
    low: float
    """Lower end of `interval`."""
    high: float
    """Upper end of it."""
    interval: Literal["median-95", "quartiles"]
    """`median-95`: holds the median with a chance of 95% at least; `quartiles`: of the blocks' ratios."""

    def __post_init__(self) -> None:
        _check_positive(ratio=self.ratio, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry(Document):
    """One case, timed once."""

    version: int
    """Schema version, `HISTORY_VERSION`."""
    cgins: str
    """Version of pytest-cgins."""
    time: str
    """When the session began: UTC, ISO 8601."""
    head: Head
    """What was checked out."""
    config: str
    """Path of the `cgins.yaml`, from the folder where pytest began."""
    case: str
    """Name of the case, `layer_norm/cuda-triton/distilbert/f32-8x128x768-1b9c`."""
    kernel_digest: str
    """Of the kernel's sources and how they are built."""
    hard: Key
    """Times of another are not comparable."""
    soft: Key
    """Nor are ratios of another."""
    device_uuid: str
    """Of the GPU; "" for a CPU."""
    status: Status
    """What became of the case."""
    method: Method
    """Clock and batching."""
    cache: Literal["cold", "warm"]
    """Of the inputs."""
    blocks: int
    """Blocks of interleaved batches."""
    median_ns_per_call: dict[ArmName, float]
    """One an arm."""
    calls_per_batch: dict[ArmName, int]
    """Calls in one timed batch, one an arm."""
    ratio_to_base: Ratio | None
    """None without a base arm."""
    ratio_to_torch: Ratio
    """Against torch, eager."""
    base_revision: str
    """Commit of the base arm; "" without one."""
    seed: int
    """Of the fresh inputs."""

    def __post_init__(self) -> None:
        if self.version != HISTORY_VERSION:
            raise ValueError(f"version {self.version}; this pytest-cgins reads {HISTORY_VERSION}")
        try:
            utc = datetime.fromisoformat(self.time).utcoffset() == timedelta()
        except ValueError:
            utc = False
        if not utc:
            raise ValueError(f"{self.time[:40]!r} is not a time in UTC like 2026-01-02T03:04:05+00:00")
        if "kernel" not in self.median_ns_per_call:
            raise ValueError("median_ns_per_call has no kernel")
        _check_positive(**self.median_ns_per_call)

    @property
    def when(self) -> datetime:
        """`time`."""
        return datetime.fromisoformat(self.time)

    @property
    def kernel_ns(self) -> float:
        """Median time of one call of the kernel."""
        return self.median_ns_per_call["kernel"]


def entries(report: SessionReport, head: Head) -> Iterator[HistoryEntry]:
    """One entry a case of a session that was timed, in the report's order."""
    environments = {one.device: one for one in report.environments}
    for evaluation in report.evaluations:
        environment = environments.get(evaluation.case.device.partition(":")[0])
        if evaluation.measurement is not None and environment is not None:
            yield _entry(report, head, evaluation, evaluation.measurement, environment)


def _entry(
    report: SessionReport, head: Head, evaluation: Evaluation, measured: Measurement, environment: Environment
) -> HistoryEntry:
    arms = [one for one in (measured.kernel, measured.base, measured.torch, measured.compiled) if one]
    case = {"trace": evaluation.case.trace_id, "cache": measured.cache, "method": measured.method}
    base = measured.against("base")
    return HistoryEntry(
        version=HISTORY_VERSION,
        cgins=report.cgins,
        time=report.started_at,
        head=head,
        config=evaluation.config,
        case=evaluation.case.name,
        kernel_digest=evaluation.kernel_digest,
        hard=hard_key(environment, case),
        soft=soft_key(environment),
        device_uuid=environment.device_uuid,
        status=evaluation.verdict.status,
        method=measured.method,
        cache=measured.cache,
        blocks=len(measured.orders.split()),
        median_ns_per_call={arm.name: arm.median_ns_per_call for arm in arms},
        calls_per_batch={arm.name: arm.calls_per_batch for arm in arms},
        ratio_to_base=_tested(base) if base else None,
        ratio_to_torch=_to_torch(measured),
        base_revision=measured.base_revision,
        seed=report.seed,
    )


def _to_torch(measured: Measurement) -> Ratio:
    if tested := measured.against("torch"):
        return _tested(tested)
    ends = (measured.speedup_vs_torch, measured.speedup_high, measured.speedup_low)
    ratio, low, high = (1 / speedup for speedup in ends)
    return Ratio(ratio=ratio, low=low, high=high, interval="quartiles")


def _tested(comparison: Comparison) -> Ratio:
    ends = {"low": comparison.ratio_low, "high": comparison.ratio_high}
    return Ratio(ratio=comparison.ratio, interval="median-95", **ends)


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} is {number}")
