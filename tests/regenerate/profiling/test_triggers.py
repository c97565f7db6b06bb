"""Evidence as figures by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cgins.core.measurement import Roofline
from pytest_cgins.regenerate.profiling import ncu
from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile, CompiledFunction, TimelineKernel
from pytest_cgins.regenerate.profiling.profile import profiled
from pytest_cgins.regenerate.search.profile_figures import figures
from tests.evaluations import make_evaluation
from tests.regenerate.profiling.outputs import RAW_2025

ROOFLINE = Roofline(
    nbytes=786432, flops=1, source="signature", peak_bytes_per_s=1e12, peak_flops_per_s=1e12, share_of_bandwidth=0.5,
    share_of_compute=0.25, bound="memory",
)  # fmt: skip
FUNCTION = CompiledFunction(
    function="k", arch="sm_90", registers_per_thread=40, spill_nbytes_per_thread=8, stack_nbytes_per_thread=16,
    static_shared_nbytes_per_block=0, instructions=(),
)  # fmt: skip
EMPTY = CaseProfile(case="c", key="k", kernels=(), top=(), timeline=(), functions=())


def test_of_a_profile_the_longest_launch_counts() -> None:
    """Its counters have our names and ncu's; blocks and bytes are held against what there is and what must be."""
    measured = make_evaluation(times_ns=(4000.0, 8000.0)).measurement
    assert measured is not None
    profile = replace(EMPTY, kernels=profiled(ncu.parse_csv(RAW_2025)), functions=(FUNCTION,))
    found = figures(replace(measured, roofline=ROOFLINE), profile, sm_count=128)
    assert found["us_per_call"] == 4.0
    assert found["launches_per_call"] == 2
    assert (found["dram_pct"], found["blocks_per_sm"]) == (61.43, 3.0)
    assert found["gpu__time_duration.sum"] == 4096
    assert (found["registers_per_thread"], found["spill_nbytes"], found["local_nbytes"]) == (40, 8, 16)
    assert (found["share_of_bandwidth"], found["share_of_compute"]) == (0.5, 0.25)
    assert "bytes_over_minimum" not in found  # what was written was not counted
    both = RAW_2025.replace("sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes_write.sum")
    counted = replace(profile, kernels=profiled(ncu.parse_csv(both)))
    moved = figures(replace(measured, roofline=ROOFLINE), counted)["bytes_over_minimum"]
    assert moved == pytest.approx((1572864 + 22.10 + 256 + 0.02) / 786432)


def test_what_is_not_known_is_missing() -> None:
    """Without counters there are launches by the timeline; without a profile there is nothing."""
    assert figures(None, None) == {}
    assert figures(None, EMPTY, sm_count=132) == {}
    timeline = (
        TimelineKernel(name="k", count=2, ns_per_call=5.0),
        TimelineKernel(name="m", count=1, ns_per_call=1.0),
    )
    unknown = replace(FUNCTION, spill_nbytes_per_thread=None)
    found = figures(None, replace(EMPTY, timeline=timeline, functions=(unknown,)))
    assert found == {"launches_per_call": 3, "registers_per_thread": 40, "local_nbytes": 16}
