"""Probes that run a kernel again, through the service: what they tell is what was there when they looked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core.tensors import unpack
from pytest_cgins.run.verification_service import VerificationService
from tests.run.relu import launcher, relu_set

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
    result, buffers = VerificationService().run(params, [buffer for _, buffer in sets])
    later = buffers[len(sets) :]
    tensors = [
        unpack(one["tensors"], buffer, "cpu") for one, buffer in zip(result["deviations"], later, strict=True)
    ]
    return result, tensors


def writes_behind(folder: Path, call: int) -> dict[str, Any]:
    """A launcher that writes behind its output in one of its calls."""
    body = f"for (int i = 0; i < 4; ++i) y[i] = x[i] < 0 ? 0 : x[i];\nif (++calls == {call}) y[4] = 1;"
    return launcher(folder, body, before="static int calls = 0;")


def test_a_deviation_is_kept_though_its_memory_is_written_again(relu_kernel: Make) -> None:
    """An answer in memory that every call returns is told as it was when it deviated."""
    sets = [relu_set(ROWS, "recorded"), relu_set(ROWS + 5, "fresh")]
    result, tensors = observe(relu_kernel(STATIC_AND_INEXACT), sets, "memory_leak", "repeat", "fresh_memory")
    inputs = {"recorded": ROWS, "fresh": ROWS + 5}
    assert {one["probe"] for one in result["deviations"]} == {"repeat", "fresh_memory"}
    for one, (given,) in zip(result["deviations"], tensors, strict=True):
        torch.testing.assert_close(given, inputs[one["name"]].relu(), rtol=1e-3, atol=0)


def test_calls_that_move_a_position_are_not_repeated(relu_kernel: Make) -> None:
    """An op that counts up an integer would leave its range: whether it leaks is not looked at."""
    one, buffer = relu_set(torch.tensor([1]))
    one["mutated"] = [0]
    kernel = relu_kernel(
        "def relu(input):\n    if input.item() > 1:\n        raise IndexError('out of bounds')\n    return input.add_(1)\n"
    )
    result, _ = observe(kernel, [(one, buffer)], "memory_leak", "repeat")
    assert result["deviations"] == []
    assert "changes integers in place" in result["observed"]["memory_leak"]["not_run"]


def test_inputs_are_looked_at_again_after_later_calls(relu_kernel: Make) -> None:
    """A kernel that changes its inputs from the second call on is told on."""
    text = "calls = 0\ndef relu(input):\n    global calls\n    calls += 1\n    result = input.clamp(min=0)\n"
    kernel = relu_kernel(text + "    if calls > 1:\n        input[0, 0] = -7.0\n    return result\n")
    result, _ = observe(kernel, [relu_set(ROWS)], "memory_leak")
    assert result["sets"][0]["inputs_changed"] == [0]


@pytest.mark.parametrize("probe", ["memory_leak", "repeat"])
def test_guards_are_looked_at_again_after_later_calls(tmp_path: Path, probe: str) -> None:
    """A launcher that writes behind its output from the second call on is told on, and is not run once more."""
    kernel = writes_behind(tmp_path, call=2)
    result, _ = observe(kernel, [relu_set(ROWS)], probe, "fresh_memory")
    assert "behind output 0 were overwritten" in result["sets"][0]["overrun"]
    assert "not run again" in result["observed"]["fresh_memory"]["not_run"]


def test_after_a_write_out_of_bounds_nothing_is_run_again(tmp_path: Path) -> None:
    """Probes that would have run the kernel again say that they did not."""
    again = ("memory_leak", "repeat", "late_work", "fresh_memory")
    result, _ = observe(writes_behind(tmp_path, call=1), [relu_set(ROWS)], *again)
    assert all("not run again" in result["observed"][name]["not_run"] for name in again)


@pytest.mark.parametrize("probe_set_is_last", [False, True])
def test_memory_returned_twice_is_told_from_late_work(relu_kernel: Make, probe_set_is_last: bool) -> None:
    """An answer that a later call overwrites is marked, also where that call is on a probe's set."""
    sets = [relu_set(ROWS, "recorded"), relu_set(ROWS + 5, "fresh")]
    if probe_set_is_last:
        sets[1][0]["once"] = True
    result, ((given,),) = observe(relu_kernel(STATIC_AND_INEXACT), sets, "late_work")
    (deviation,) = result["deviations"]
    assert (deviation["probe"], deviation["name"], deviation["reused"]) == ("late_work", "recorded", True)
    torch.testing.assert_close(given, (ROWS + 5).relu(), rtol=1e-3, atol=0)


def test_an_answer_that_changes_on_memory_of_its_own_is_late(relu_kernel: Make) -> None:
    """What is written afterwards to an answer that no other call returned is no reuse."""
    text = (
        "kept = []\ndef relu(input):\n    kept.append(input.clamp(min=0))\n    kept[0].add_(len(kept) - 1)\n"
    )
    kernel = relu_kernel(text + "    return kept[-1]\n")
    result, _ = observe(kernel, [relu_set(ROWS, "recorded"), relu_set(ROWS, "fresh")], "late_work")
    (deviation,) = result["deviations"]
    assert (deviation["name"], deviation["reused"]) == ("recorded", False)
