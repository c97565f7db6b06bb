"""Launches that begin early, as far as that can be tested without a GPU: see tests/gpu/test_device_order_gpu.py."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from pytest_cgins.config import ProbeException, Repeatability
from pytest_cgins.core.verdict import Reason
from pytest_cgins.verify.probes import device_order
from tests.verify.test_probe_verdicts import NEARLY, RIGHT, after, second


def test_another_answer_is_told_with_what_it_lies_beside() -> None:
    """The message says which launches it was between, how much differs, and what to call."""
    other = RIGHT.clone()
    other[1, 2] += 0.25
    result = after(second(device_order.NAME, other, about=device_order.READS_EARLY))
    assert (result.outcome, result.reason) == ("tripped", Reason.DEVICE_ORDER)
    assert "beside a launch ahead that lets others begin before it writes the inputs" in result.message
    assert "1 of 24 elements of output 0, by up to 0.25" in result.message
    assert "→ call cudaGridDependencySynchronize()" in result.message


def test_atomics_in_any_order_are_no_race() -> None:
    """What may differ from call to call may do so here."""
    deviation = second(device_order.NAME, NEARLY, about=device_order.IN_A_ROW)
    assert after(deviation, repeatability=Repeatability(kind="tolerance")).outcome == "held"


@pytest.mark.parametrize(
    ("alone", "beside", "outcome"),
    [("nearly", "nearly", "held"), ("wrong", "wrong", "held"), ("nearly", "wrong", "tripped")],
)
def test_who_varies_alone_as_much_is_not_accused(alone: str, beside: str, outcome: str) -> None:
    """That is `repeat`'s to tell, except of answers that are wrong beside other work alone."""
    answers = {"nearly": NEARLY, "wrong": RIGHT + 1}
    deviations = (
        second("repeat", answers[alone]),
        second(device_order.NAME, answers[beside], about="launches"),
    )
    for permissions in ({}, {"exceptions": (ProbeException(probe="repeat", reason="atomics"),)}):
        assert after(*deviations, **permissions).outcome == outcome


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64])
def test_spoilt_memory_holds_other_numbers(dtype: torch.dtype) -> None:
    """All numbers change, and integers keep their range; bytes that are no whole number stay."""
    numbers = torch.arange(-3, 6).to(dtype)
    size = numbers.numel() * dtype.itemsize
    behind = torch.full((dtype.itemsize - 1,), 7, dtype=torch.uint8)
    memory = torch.cat([numbers.view(torch.uint8), behind])
    device_order._spoil(memory, dtype)
    spoilt = memory[:size].view(dtype).float()
    assert torch.equal(memory[size:], behind)
    assert bool((spoilt != numbers.float()).all())
    if dtype == torch.int64:
        assert sorted(spoilt.tolist()) == sorted(numbers.tolist())


@pytest.mark.skipif(not shutil.which("ptxas"), reason="needs ptxas")
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
def test_our_kernel_can_be_assembled(tmp_path: Path, architecture: str) -> None:
    """For the first GPUs that launch early, and for those after them."""
    source = tmp_path / "relay.ptx"
    source.write_bytes(device_order._PTX)
    subprocess.run(["ptxas", f"-arch={architecture}", source, "-o", tmp_path / "relay.cubin"], check=True)
