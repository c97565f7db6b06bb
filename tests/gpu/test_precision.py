"""Convolutions recorded on a GPU: cuDNN's TF32 must not make golds that no fp32 kernel can meet."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.config import Tolerance
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.prepare import prepare

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tier", ["recipe", "full"])
def test_convolution_of_the_recording_gpu_is_no_drift(tmp_path: Path, tier: str) -> None:
    """Gold, recorded where torch takes TF32 unasked, is as near the fp64 reference as fp32 is."""
    x, weight = torch.randn(4, 64, 30, 30, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    with pytest_cgins.record(tmp_path / "pack", ops=["torch.nn.functional.conv2d"], tier=tier):
        functional.conv2d(x, weight)
    reader = open_pack(tmp_path / "pack")
    made = prepare(reader.pack.traces[0], reader, "cuda:0", seed=1)
    assert made.drift(Tolerance(), "cuda:0") == ""
