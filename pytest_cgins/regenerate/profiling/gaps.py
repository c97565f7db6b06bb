"""How far a kernel is from its limits, by counters or by its roofline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_cgins.core.measurement import Roofline
from pytest_cgins.regenerate.profiling.model import NO_LATENCY_DATA, Gaps, ProfiledKernel

NEAR_PEAK = 0.85
"""Share of a peak from which there is little left to win."""
_COMPUTE = ("tensor_pct", "fp32_pct", "sm_pct")


def near_peak(found: Roofline) -> bool:
    """Whether the greater of both shares is at the peak: a kernel that is bound by memory never uses all arithmetic."""
    return max(found.share_of_compute, found.share_of_bandwidth) >= NEAR_PEAK


def of_counters(kernels: Sequence[ProfiledKernel]) -> Gaps | None:
    """Gaps of a call by ncu, each kernel by its share of the time; None where counters for two axes are missing.

    Δc = max(0, 1 − max(tensor, fp32, multiprocessor)), Δm = max(0, 1 − DRAM), Δl = the greatest stall; 0.5 without one.
    """
    compute = _weighted((one.time_share, _most(_values(one), _COMPUTE)) for one in kernels)
    memory = _weighted((one.time_share, _values(one).get("dram_pct")) for one in kernels)
    stall = _weighted((one.time_share, _greatest_stall(_values(one))) for one in kernels)
    if compute is None or memory is None:
        return None
    return Gaps(
        compute=max(0.0, 1 - compute / 100),
        memory=max(0.0, 1 - memory / 100),
        latency=NO_LATENCY_DATA if stall is None else stall / 100,
        latency_known=stall is not None,
        source="ncu",
    )


def of_roofline(found: Roofline) -> Gaps:
    """Gaps by work over time; of latency nothing is known."""
    return Gaps(
        compute=max(0.0, 1 - found.share_of_compute),
        memory=max(0.0, 1 - found.share_of_bandwidth),
        latency=NO_LATENCY_DATA,
        latency_known=False,
        source="roofline",
    )


def _values(kernel: ProfiledKernel) -> dict[str, float]:
    return {one.name: one.value for one in kernel.metrics}


def _most(values: Mapping[str, float], names: Iterable[str]) -> float | None:
    return max((values[name] for name in names if name in values), default=None)


def _greatest_stall(values: Mapping[str, float]) -> float | None:
    return max((value for name, value in values.items() if name.startswith("stall_")), default=None)


def _weighted(pairs: Iterable[tuple[float, float | None]]) -> float | None:
    """Mean by weight of those that are known."""
    known = [(weight, value) for weight, value in pairs if value is not None]
    whole = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / whole if whole > 0 else None
