"""Drift: whether torch still gives the gold, here or where it was recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_cgins.core.trace import Origin
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import ExpectedSet
from pytest_cgins.verify.expected import ExpectedOutput, gold_drift
from tests.verify.helpers import DERIVED, expected_output, normal

CPU = Origin(device="cpu", device_name="a processor", torch="2.6.0")


def output(error: float, gold_error: float) -> ExpectedOutput:
    """Half-precision output whose torch is off by `error`, and whose gold by `gold_error`, element by element."""
    reference = normal(40, 50)
    noise = normal(40, 50, seed=1).half()
    recorded = (reference + gold_error * noise).half()
    made = expected_output(reference, torch.float16, gold=recorded)
    answer = (reference + error * noise).half()
    return replace(made, answer=answer, scale=rules.derive(reference.double(), answer, reference))


def test_gold_of_a_less_exact_device_is_no_drift() -> None:
    """torch on the recording device is as far from the reference as the gold: it is what torch gives there."""
    here, there = output(0.0, 0.02), output(0.02, 0.02)
    assert gold_drift([here], DERIVED, CPU, "cuda:0", lambda: [there]) == ""


@pytest.mark.parametrize(("device", "error"), [("cuda:0", 0.0), ("cpu", 0.02)])
def test_gold_that_no_device_gives_is_drift(device: str, error: float) -> None:
    """Torch is exact on the recording device too, or this is that device: nothing explains the gold."""
    here, there = output(0.0, 0.02), output(error, 0.02)
    what = gold_drift([here], DERIVED, CPU, device, lambda: [there])
    assert "times as far from the fp64 reference as torch's answers may be. Record the pack again" in what
    assert "recorded with torch 2.6.0 on cpu (a processor)" in what


def test_exact_gold_asks_nothing_of_the_recording_device() -> None:
    """Where the gold is near the reference, torch is not run a second time."""

    def never() -> list[ExpectedOutput]:
        raise AssertionError

    assert gold_drift([output(0.0, 0.0)], DERIVED, CPU, "cuda:0", never) == ""


def test_memory_is_that_of_all_answers() -> None:
    """Of integers that are right as well, too: what is held is cut by this number."""
    made = expected_output(torch.arange(4))
    doubtful = replace(made, doubtful=(torch.arange(4), torch.arange(4)))
    sets = [ExpectedSet(name="fresh", outputs=(one,), arguments={}) for one in (doubtful, made)]
    assert sets[0].nbytes == 3 * sets[1].nbytes == 96
