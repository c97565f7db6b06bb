"""The process that is profiled: its timeline from a trace, and what its parent makes of its end."""

from __future__ import annotations

from pytest_cgins.regenerate.profiling.runner import timeline_of

TRACE = [
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5.0, "args": {}},
    {
        "ph": "X", "cat": "kernel", "name": "void gelu<float>(float const*)", "dur": 2.5,
        "args": {
            "device": 0, "grid": [384, 1, 1], "block": [256, 1, 1], "registers per thread": 29, "shared memory": 0,
            "est. achieved occupancy %": 87,
        },
    },
    {"ph": "X", "cat": "kernel", "name": "void gelu<float>(float const*)", "dur": 3.5},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 1.0, "args": {"bytes": 4}},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 1.0, "args": None},
    {"ph": "i", "name": "Record Window End"},
]  # fmt: skip


def test_a_timeline_is_what_the_device_did() -> None:
    """Launches and copies by name, longest first, for one of two calls; what the host did is left out."""
    gelu, fill = timeline_of(TRACE, 2)
    assert gelu == {
        "name": "void gelu<float>(float const*)", "count": 1, "ns_per_call": 3000.0, "grid": "(384, 1, 1)",
        "block": "(256, 1, 1)", "registers_per_thread": 29, "shared_nbytes_per_block": 0, "occupancy_pct": 87.0,
    }  # fmt: skip
    assert (fill["ns_per_call"], fill["grid"], fill["registers_per_thread"]) == (1000.0, "", None)
    assert timeline_of([], 3) == []
