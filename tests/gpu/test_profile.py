"""A profile on a GPU: kernels by name, and times that the device took."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.profiler import profile
from pytest_cgins.recording.record import record

pytestmark = pytest.mark.gpu


def test_kernels_are_named_and_timed(tmp_path: Path) -> None:
    """A matrix product of 2048³ is one GEMM that takes most of the time; relu_ is one elementwise kernel."""
    x = torch.randn(2048, 2048, device="cuda")
    with record(tmp_path / "pack"):
        torch.mm(x, x)
        x.relu_()
    reader = open_pack(tmp_path / "pack")
    made, failures = profile(reader, "cuda", reader.pack.traces)
    assert failures == []
    assert (made.device, made.device_name) == ("cuda", torch.cuda.get_device_name())
    by_op = {one.op.rpartition(".")[2]: one for one in made.traces}
    product, relu = by_op["mm"], by_op["relu_"]
    assert sum(kernel.count for kernel in relu.kernels) == 1
    assert "elementwise" in relu.kernels[0].name
    assert product.kernels
    assert product.time_share > relu.time_share
    for one in made.traces:
        device_ns = sum(kernel.ns_per_call for kernel in one.kernels)
        assert 1e3 < device_ns < 1.5 * one.median_ns_per_call + 5e3
