"""What a profile of a pack adds to prompts: the ATen calls and CUDA kernels beneath an op, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cgins.recording.profile import PROFILE_VERSION, AtenCall, DeviceKernel, PackProfile, TraceProfile
from pytest_cgins.regenerate.prompts.assembly import generator
from tests.regenerate.prompts.example import context_of


@pytest.mark.exam
def test_aten_calls_and_cuda_kernels_are_told() -> None:
    """Of the recorded call: names, how often each, times; without a profile nothing of it is made up."""
    context = context_of("gelu", "cuda")
    pack, trace = context.traces[0]
    profile = PackProfile(
        version=PROFILE_VERSION,
        pack=pack.pack.name,
        device="cuda",
        device_name="NVIDIA H200",
        torch="2.10",
        traces=(
            TraceProfile(
                trace=trace.id, op=trace.call.op, signature=trace.signature, calls=3,
                aten=(AtenCall(name="aten.gelu.default", count=1, view=False),),
                kernels=(DeviceKernel(name="vectorized_elementwise_kernel<4, Gelu>", count=1, ns_per_call=2500.0),),
                median_ns_per_call=3210.0, samples=9, time_share=0.125,
            ),
        ),
    )  # fmt: skip
    text = generator(replace(context, profiles=(profile,)))[-1].text
    assert "ATen: aten.gelu.default×1" in text
    assert "CUDA: vectorized_elementwise_kernel<4, Gelu> ×1, 2.5 µs" in text
    assert "3.21 µs a call in torch, 12.5% of its model's profile" in text
    bare = generator(replace(context, profiles=()))[-1].text
    assert "ATen: aten" not in bare
