"""Which counters are asked of ncu, and the figures that they become: names by version, and when they are bad."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.regenerate.profiling.model import Axis

SECTIONS = (
    "SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "LaunchStats",
    "Occupancy", "SchedulerStats", "WarpStateStats",
)  # fmt: skip
"""Sections of ncu: each version knows which counters of a chip belong to them."""
_MEMORY = (
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
)
_PIPES = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
)
EXTRAS = ((*_MEMORY, *_PIPES), _MEMORY, ())
"""Counters that are wanted besides, in the order in which they are tried: what a chip lacks is n/a, but there are
versions that refuse all counters for one whose name they do not know, and names of pipes differ most."""


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
    names: tuple[str, ...]
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
METRICS: tuple[Metric, ...] = (
    Metric(
        name="sm_pct", axis="compute", title="multiprocessor throughput", unit="%", good=80, bad=20, only_unit="%",
        names=(r"sm__throughput" + _ACTIVE, r"Compute \(SM\) Throughput", r"Compute \(SM\) \[%\]", r"SOL SM"),
    ),
    Metric(
        name="tensor_pct", axis="compute", title="tensor pipe", unit="%",
        names=(
            r"sm__pipe_tensor\w*_cycles?_active" + _ACTIVE,
            r"sm__inst_executed_pipe_tensor\w*" + _ACTIVE,
        ),
    ),
    Metric(
        name="fp32_pct", axis="compute", title="fp32 pipe", unit="%",
        names=(
            r"sm__pipe_(?:fma(?:heavy|lite)?|fp32)_cycles_active" + _ACTIVE,
            r"sm__inst_executed_pipe_(?:fma(?:heavy|lite)?|fp32)" + _ACTIVE,
        ),
    ),
    Metric(
        name="alu_pct", axis="compute", title="integer and logic pipe", unit="%",
        names=(r"sm__pipe_alu_cycles_active" + _ACTIVE, r"sm__inst_executed_pipe_alu" + _ACTIVE),
    ),
    Metric(
        name="xu_pct", axis="compute", title="pipe of special functions and conversions", unit="%", good=30, bad=90,
        names=(r"sm__inst_executed_pipe_xu" + _ACTIVE,),
    ),
    Metric(
        name="fp64_pct", axis="compute", title="fp64 pipe", unit="%", good=5, bad=80,
        names=(r"sm__pipe_fp64\w*_cycles_active" + _ACTIVE, r"sm__inst_executed_pipe_fp64\w*" + _ACTIVE),
    ),
    Metric(
        name="issue_active_pct", axis="compute", title="cycles in which an instruction is issued", unit="%",
        good=70, bad=15, only_unit="%",
        names=(
            r"smsp__issue_active" + _ACTIVE, r"sm__inst_issued" + _ACTIVE, r"Issue Slots Busy", r"SM Busy",
        ),
    ),
    Metric(
        name="active_threads_per_warp", axis="compute", title="threads of a warp that take part", unit="ratio",
        good=32, bad=16,
        names=(
            r"smsp__thread_inst_executed_per_inst_executed\.ratio", r"Avg\. Active Threads Per Warp",
        ),
    ),
    Metric(
        name="dram_pct", axis="memory", title="DRAM throughput", unit="%", good=85, bad=25, only_unit="%",
        names=(
            r"(?:gpu__)?dram__throughput" + _ACTIVE, r"gpu__dram_throughput" + _ACTIVE, r"DRAM Throughput",
            r"DRAM \[%\]", r"SOL DRAM",
        ),
    ),
    Metric(
        name="memory_pct", axis="memory", title="busiest part of the memory system", unit="%", only_unit="%",
        names=(
            r"gpu__compute_memory_throughput" + _ACTIVE, r"gpu__compute_memory_access_throughput" + _ACTIVE,
            r"Memory Throughput", r"Memory \[%\]", r"SOL Memory",
        ),
    ),
    Metric(
        name="l1_hit_pct", axis="memory", title="L1 hit rate", unit="%",
        names=(r"l1tex__t_sector_hit_rate\.pct", r"L1/TEX Hit Rate", r"L1 Hit Rate"),
    ),
    Metric(
        name="l2_hit_pct", axis="memory", title="L2 hit rate", unit="%",
        names=(r"lts__t_sector_hit_rate\.pct", r"L2 Hit Rate"),
    ),
    Metric(
        name="l2_pct", axis="memory", title="L2 throughput", unit="%", only_unit="%",
        names=(r"lts__throughput" + _ACTIVE, r"lts__t_sectors" + _ACTIVE, r"L2 Cache Throughput", r"SOL L2"),
    ),
    Metric(
        name="load_bytes_used_pct", axis="memory", title="bytes used of each sector loaded (coalescing)", unit="%",
        good=100, bad=25, names=(r"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld\.pct",),
    ),
    Metric(
        name="store_bytes_used_pct", axis="memory", title="bytes used of each sector stored (coalescing)", unit="%",
        good=100, bad=25, names=(r"smsp__sass_average_data_bytes_per_sector_mem_global_op_st\.pct",),
    ),
    Metric(
        name="load_sectors_per_request", axis="memory", title="sectors a load (4 for fp32 in a row, 16 for 128-bit)",
        unit="ratio", names=(r"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld\.ratio",),
    ),
    Metric(
        name="store_sectors_per_request", axis="memory", title="sectors a store (4 for fp32 in a row, 16 for 128-bit)",
        unit="ratio", names=(r"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st\.ratio",),
    ),
    Metric(
        name="occupancy_pct", axis="latency", title="achieved occupancy", unit="%", good=60, bad=10, only_unit="%",
        names=(r"sm__warps_active" + _ACTIVE, r"Achieved Occupancy"),
    ),
    Metric(
        name="theoretical_occupancy_pct", axis="latency", title="occupancy that registers and shared memory allow",
        unit="%", good=60, bad=10, only_unit="%",
        names=(r"sm__maximum_warps_per_active_cycle_pct", r"Theoretical Occupancy"),
    ),
    Metric(
        name="waves", axis="latency", title="waves of blocks on each multiprocessor", unit="ratio", good=1, bad=0.1,
        names=(r"launch__waves_per_multiprocessor", r"Waves Per SM"),
    ),
    Metric(
        name="eligible_warps", axis="latency", title="warps ready a scheduler and cycle", unit="warps", good=2, bad=0.2,
        names=(r"smsp__warps_eligible\.avg\.per_cycle_active", r"Eligible Warps Per Scheduler"),
    ),
    Metric(
        name="registers_per_thread", axis="latency", title="registers a thread", unit="count",
        names=(r"launch__registers_per_thread", r"Registers Per Thread"),
    ),
)  # fmt: skip
BANK_CONFLICTS = Metric(
    name="bank_conflict_pct", axis="memory", title="shared memory wavefronts that repeat for bank conflicts", unit="%",
    good=0, bad=50, names=(),
)  # fmt: skip
DURATION = (r"gpu__time_duration\.(?:sum|avg|max)", r"Duration")
