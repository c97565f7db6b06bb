"""Figures from ncu's columns: which are there, and how bad they are."""

from __future__ import annotations

import pytest

from pytest_cgins.regenerate.profiling.metrics import METRICS, Reading, duration_ns, understood, worst

PIPE = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def found(**columns: float) -> dict[str, float]:
    return {one.name: one.value for one in understood({name: Reading(v, "%") for name, v in columns.items()})}


def test_each_axis_has_figures_that_can_be_bad() -> None:
    """Names are unique; on each axis there are several with a good and a bad end."""
    assert len({one.name for one in METRICS}) == len(METRICS)
    for axis in ("compute", "memory", "latency"):
        assert sum(one.axis == axis and one.good is not None for one in METRICS) >= 3
    assert all((one.good is None) == (one.bad is None) for one in METRICS)


def test_badness_runs_from_good_to_bad() -> None:
    """It is 0 at the good end and beyond, 1 at the bad one and beyond, whichever end is the greater."""
    by_name = {one.name: one for one in METRICS}
    dram, fp64 = by_name["dram_pct"], by_name["fp64_pct"]
    assert [dram.badness(value) for value in (100, 85, 55, 25, 0)] == [0, 0, 0.5, 1, 1]
    assert [fp64.badness(value) for value in (0, 5, 80, 99)] == [0, 0, 1, 1]
    assert by_name["l2_hit_pct"].badness(0) is None


def test_the_busiest_of_like_pipes_counts() -> None:
    """Chips name their tensor pipes differently, and have several."""
    assert found(**{PIPE.format("tensor_op_hmma"): 10.0, PIPE.format("tensor_op_imma"): 40.0}) == {
        "tensor_pct": 40.0
    }
    halves = {PIPE.format("fma"): 20.0, PIPE.format("fmaheavy"): 30.0, PIPE.format("fma_type_fp16"): 90.0}
    assert found(**halves) == {"fp32_pct": 30.0}
    cycles = "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
    assert found(**{PIPE.format("tensor"): 10.0, cycles: 5.0}) == {"tensor_pct": 5.0}


def test_stalls_are_shares_of_the_cycles_between_instructions() -> None:
    """By the latency where it is told, else by the sum; a warp that was selected is not stalled."""
    columns = {STALL.format("wait"): 2.0, STALL.format("long_scoreboard"): 6.0, STALL.format("selected"): 2.0}
    assert found(**columns) == {"stall_wait_pct": 20.0, "stall_long_scoreboard_pct": 60.0}
    told = {**columns, "smsp__average_warp_latency_per_inst_issued.ratio": 20.0}
    assert found(**told) == {"stall_wait_pct": 10.0, "stall_long_scoreboard_pct": 30.0}
    also = {**columns, STALL.format("wait_not_issued"): 9.0}
    assert found(**also) == found(**columns)


@pytest.mark.parametrize("split", [True, False])
def test_bank_conflicts_are_a_share_of_wavefronts(split: bool) -> None:
    """By the sum, or by loads and stores; without wavefronts there is no figure."""
    base = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
    conflicts = {f"{base}_op_ld.sum": 10.0, f"{base}_op_st.sum": 15.0} if split else {f"{base}.sum": 25.0}
    waves = {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 100.0}
    assert found(**conflicts, **waves) == {"bank_conflict_pct": 25.0}
    assert found(**conflicts) == {}
    assert found(**conflicts, **dict.fromkeys(waves, 0.0)) == {}


def test_the_worst_of_each_axis_come_first() -> None:
    """So many of each axis, by badness; what is good or only describes is not among them."""
    columns = {
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": Reading(50, "%"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": Reading(10, "%"),
        "launch__waves_per_multiprocessor": Reading(0.55, ""),
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": Reading(95, "%"),
        "lts__t_sector_hit_rate.pct": Reading(3, "%"),
        STALL.format("barrier"): Reading(1, "inst"),
        STALL.format("wait"): Reading(3, "inst"),
    }
    metrics = understood(columns)
    assert [one.name for one in worst(metrics, 2)] == ["sm_pct", "occupancy_pct", "stall_wait_pct"]
    assert {"dram_pct", "l2_hit_pct"} <= {one.name for one in metrics}
    assert duration_ns(columns) is None


def test_a_rate_is_no_share() -> None:
    """`Memory Throughput` in bytes a second does not stand for a share of the peak."""
    assert understood({"Memory Throughput": Reading(1.1e12, "byte/second")}) == ()
