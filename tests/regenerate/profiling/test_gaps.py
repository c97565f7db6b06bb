"""Gaps by the formulae: max of what is used, by counters and by the roofline."""

from __future__ import annotations

import pytest

from pytest_cgins.core.measurement import Roofline
from pytest_cgins.regenerate.profiling import rooflines
from pytest_cgins.regenerate.profiling.metrics import Reading
from pytest_cgins.regenerate.profiling.ncu import Launch
from pytest_cgins.regenerate.profiling.profile import main_kernel, profiled

SM, DRAM = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
STALL = "smsp__warp_issue_stalled_{}_per_warp_active.pct"


def launch(ns: float | None = None, **columns: float) -> Launch:
    times = {} if ns is None else {"gpu__time_duration.sum": Reading(ns, "ns")}
    return Launch(
        "0", "k", columns={**{name: Reading(value, "%") for name, value in columns.items()}, **times}
    )


def roofline(bandwidth: float, compute: float) -> Roofline:
    return Roofline(
        nbytes=1, flops=1, source="signature", peak_bytes_per_s=1.0, peak_flops_per_s=1.0,
        share_of_bandwidth=bandwidth, share_of_compute=compute, bound="memory",
    )  # fmt: skip


def test_each_gap_is_what_is_left_to_the_busiest() -> None:
    """Compute is held against the busiest pipe, memory against DRAM, latency is the greatest stall."""
    one = launch(**{SM: 40, TENSOR: 75, DRAM: 30, STALL.format("wait"): 20, STALL.format("barrier"): 55})
    found = rooflines.of_counters(profiled([one]))
    assert found is not None
    assert (found.compute, found.memory, found.latency) == pytest.approx((0.25, 0.7, 0.55))
    assert (found.latency_known, found.source) == (True, "ncu")


def test_kernels_count_by_their_time() -> None:
    """A call of two launches has the gaps of the one that takes nine tenths of it, nearly."""
    kernels = profiled([launch(900, **{SM: 100, DRAM: 0}), launch(100, **{SM: 0, DRAM: 100})])
    found = rooflines.of_counters(kernels)
    assert found is not None
    assert (found.compute, found.memory) == pytest.approx((0.1, 0.9))
    assert main_kernel(kernels).time_share == pytest.approx(0.9)
    alike = profiled([launch(**{SM: 100, DRAM: 0}), launch(50, **{SM: 0, DRAM: 100})])
    assert [one.time_share for one in alike] == [0.5, 0.5]


def test_without_data_there_is_no_gap() -> None:
    """Latency is 0.5 and said to be unknown; without counters of compute or memory there are no gaps."""
    found = rooflines.of_counters(profiled([launch(**{SM: 10, DRAM: 20})]))
    assert found is not None
    assert (found.latency, found.latency_known) == (0.5, False)
    assert rooflines.of_counters(profiled([launch(**{SM: 10})])) is None
    assert rooflines.of_counters(()) is None


def test_a_share_beyond_the_peak_leaves_no_gap() -> None:
    """Data that came from a cache is faster than memory: the gap is 0, not below."""
    found = rooflines.of_roofline(roofline(1.3, 0.25))
    assert (found.compute, found.memory, found.latency, found.source) == (0.75, 0.0, 0.5, "roofline")
    assert not found.latency_known


@pytest.mark.parametrize(
    ("bandwidth", "compute", "near"), [(0.85, 0.01, True), (0.1, 0.9, True), (0.84, 0.84, False)]
)
def test_near_the_peak_is_the_greater_share(bandwidth: float, compute: float, near: bool) -> None:
    """One of both is enough: a kernel bound by memory keeps its gap to compute."""
    assert rooflines.near_peak(roofline(bandwidth, compute)) is near
