"""Other numbers in the same tensors: what is stale, and what only differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.run.verification_service import VerificationService
from tests.run.relu import relu_set

pytestmark = pytest.mark.exam

Make = Callable[..., Any]
ROWS = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
RIGHT = "def relu(input):\n    return input.clamp(min=0)\n"
BY_ADDRESS = """
kept = {}
def relu(input):
    return kept.setdefault(input.data_ptr(), input.clamp(min=0)).clone()
"""
ONE_ROW_BY_ADDRESS = """
kept = {}
def relu(input):
    answer = input.clamp(min=0)
    answer[0] = kept.setdefault(input.data_ptr(), answer[0].clone())
    return answer
"""
AN_INPUT_BY_ADDRESS = """
kept = {}
def relu(input):
    return input.clamp(min=0) + 0.5 * kept.setdefault(input.data_ptr(), input.sum())
"""
BY_ADDRESS_AND_SUMS = """
kept = {}
def relu(input):
    key = input.data_ptr(), input[0].sum().item()
    return kept.setdefault(key, input.clamp(min=0)).clone()
"""
EACH_CALL_OTHERWISE = """
calls = 0
def relu(input):
    global calls
    calls += 1
    return input.clamp(min=0) + calls
"""
ONE_CALL_IN_THREE = """
calls = 0
def relu(input):
    global calls
    calls += 1
    return input.clamp(min=0) + (calls % 3 == 0)
"""
NOTHING_AFTER_TWO_CALLS = """
calls = 0
def relu(input):
    global calls
    calls += 1
    return input.clamp(min=0) * (calls <= 2)
"""
TIRES = """
calls = 0
def relu(input):
    global calls
    calls += 1
    if calls > 2:
        raise RuntimeError("tired")
    return input.clamp(min=0)
"""


def deviations(kernel: dict[str, Any], *inputs: torch.Tensor) -> list[dict[str, Any]]:
    """What the probe alone sees of a kernel."""
    sets = [relu_set(tensor, f"set {index}") for index, tensor in enumerate(inputs)]
    params = {"kernel": kernel, "device": "cpu", "sets": [one for one, _ in sets], "probes": ["fresh_memory"]}
    result, _ = VerificationService().run(params, [buffer for _, buffer in sets])
    found: list[dict[str, Any]] = result["deviations"]
    return found


@pytest.mark.parametrize("text", [BY_ADDRESS, ONE_ROW_BY_ADDRESS, AN_INPUT_BY_ADDRESS])
def test_what_is_kept_for_an_address_is_stale(relu_kernel: Make, text: str) -> None:
    """An answer, a part of one, or what it is made of: the same wrong answer each time, in these tensors alone."""
    found = deviations(relu_kernel(text), ROWS, ROWS + 5)
    assert [one["reused"] for one in found] == [True, True]


@pytest.mark.parametrize("text", [EACH_CALL_OTHERWISE, ONE_CALL_IN_THREE, NOTHING_AFTER_TWO_CALLS])
def test_what_differs_otherwise_is_not(relu_kernel: Make, text: str) -> None:
    """Neither an answer that comes once, nor one that comes from any tensors, was kept for these."""
    found = deviations(relu_kernel(text), ROWS, ROWS + 5)
    assert found
    assert not any(one["reused"] for one in found)


def test_an_exception_is_no_answer(relu_kernel: Make) -> None:
    """It is told as it is."""
    found = deviations(relu_kernel(TIRES), ROWS, ROWS + 5)
    assert all(one["error"]["message"].endswith("raised RuntimeError: tired") for one in found)
    assert [one["reused"] for one in found] == [False, False]


def test_a_right_kernel_and_a_single_set_show_nothing(relu_kernel: Make) -> None:
    """Numbers are exchanged between sets, and elements of each."""
    kernel = relu_kernel(RIGHT)
    assert deviations(kernel, ROWS, ROWS + 5) == []
    assert deviations(kernel, ROWS) == []


def test_what_is_kept_while_a_part_stays_is_stale(relu_kernel: Make) -> None:
    """An answer that is new only if the first row is: single elements of the others show it."""
    many = torch.arange(1.0, 65.0).reshape(16, 4)
    found = deviations(relu_kernel(BY_ADDRESS_AND_SUMS), *(many + 100 * index for index in range(8)))
    assert found
    assert all(one["reused"] for one in found)
