"""Probes that run a kernel again, through the service: what they tell is what was there when they looked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_cgins.execute.tensors import unpack
from pytest_cgins.execute.verification import VerificationService

Make = Callable[..., Any]
ROWS = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
STATIC_AND_INEXACT = """
import torch
OUT = torch.empty(2, 2)
calls = 0

def relu(input):
    global calls
    calls += 1
    return torch.mul(input.clamp(min=0), 1 + calls * 2.0 ** -20, out=OUT)
"""


def observe(kernel: dict[str, Any], sets: list[Any], *probes: str) -> tuple[dict[str, Any], list[Any]]:
    """What the service tells of a kernel, and the tensors of each deviation."""
    params = {"kernel": kernel, "device": "cpu", "sets": [one for one, _ in sets], "probes": list(probes)}
    result, buffers = VerificationService({}).run(params, [buffer for _, buffer in sets])
    later = buffers[len(sets) :]
    tensors = [
        unpack(one["tensors"], buffer, "cpu") for one, buffer in zip(result["deviations"], later, strict=True)
    ]
    return result, tensors


def test_a_deviation_is_kept_though_its_memory_is_written_again(relu_kernel: Make, relu_inputs: Make) -> None:
    """An answer in memory that every call returns is told as it was when it deviated."""
    sets = [relu_inputs(ROWS, "recorded"), relu_inputs(ROWS + 5, "fresh")]
    result, tensors = observe(relu_kernel(STATIC_AND_INEXACT), sets, "memory_leak", "repeat", "fresh_memory")
    inputs = {"recorded": ROWS, "fresh": ROWS + 5}
    assert {one["probe"] for one in result["deviations"]} == {"repeat", "fresh_memory"}
    for one, (given,) in zip(result["deviations"], tensors, strict=True):
        torch.testing.assert_close(given, inputs[one["name"]].relu(), rtol=1e-3, atol=0)


def test_calls_that_move_a_position_are_not_repeated(relu_kernel: Make, relu_inputs: Make) -> None:
    """An op that counts up an integer would leave its range: whether it leaks is not looked at."""
    one, buffer = relu_inputs(torch.tensor([1]))
    one["mutated"] = [0]
    kernel = relu_kernel(
        "def relu(input):\n    if input.item() > 1:\n        raise IndexError('out of bounds')\n    return input.add_(1)\n"
    )
    result, _ = observe(kernel, [(one, buffer)], "memory_leak", "repeat")
    assert result["deviations"] == []
    assert "changes integers in place" in result["observed"]["memory_leak"]["not_run"]
