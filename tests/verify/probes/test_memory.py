"""What a kernel does to memory: `memory_use` and `memory_leak`, through the service that runs it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_cgins.run.verification import VerificationService
from pytest_cgins.verify.probes import memory_leak, memory_use
from pytest_cgins.verify.probes.memory_leak import MOST_CALLS_OF_ACCELERATOR

Make = Callable[..., Any]
HONEST = """
import torch
POOL = []
TABLES = {}

def relu(input):
    if len(POOL) < 2:                     # a pool that fills up in the first calls
        POOL.append(torch.ones(1 << 20))
    TABLES[input.data_ptr()] = torch.ones(1000)
    return (input.double() + POOL[-1][0].double() - 1).clamp(min=0).to(input.dtype)
"""
LEAKS_TENSORS = """
import torch
KEPT = []

def relu(input):
    KEPT.append(torch.ones(NUMEL))
    return input.clamp(min=0)
"""
LEAKS_MAPPINGS = """
import mmap
KEPT = []

def relu(input):
    KEPT.append(mmap.mmap(-1, 1 << 20))
    return input.clamp(min=0)
"""
LEAVES_GARBAGE = """
import torch

def relu(input):
    ring = [torch.ones(5000)]
    ring.append(ring)                     # Python's collector finds it
    return input.clamp(min=0)
"""
SETTLES_SLOWLY = """
import time

import torch
KEPT = []

def relu(input):
    time.sleep(0.04)                      # as on a busy machine: few calls fit into the budget
    if len(KEPT) < 9:
        KEPT.append(torch.ones(100))
    return input.clamp(min=0)
"""
COUNTS_ITS_CALLS = """
calls = 0

def relu(input):
    global calls
    calls += 1
    return input.clamp(min=0) if calls < 4 else input.abs()
"""
WASTES = """
import torch

def relu(input):
    torch.ones(75 << 20)                  # 300 MiB
    return input.clamp(min=0)
"""
WASTES_AT_FIRST = """
import torch
kept = None

def relu(input):
    global kept
    if kept is None:
        kept = torch.ones(75 << 20)       # 300 MiB
    return input.clamp(min=0)
"""


def observe(kernel: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """What the service tells of one kernel on one set."""
    one, buffer = inputs
    params = {
        "kernel": kernel,
        "device": "cpu",
        "sets": [one],
        "probes": ["memory_use", "memory_leak", "repeat"],
    }
    result, _ = VerificationService({}).run(params, [buffer])
    assert result["sets"][0]["error"] is None
    return result


def test_pools_that_fill_up_are_no_leak(relu_kernel: Make, relu_inputs: Make) -> None:
    """A kernel that keeps buffers, one for every address that it meets, holds all probes of memory."""
    result = observe(relu_kernel(HONEST), relu_inputs(torch.randn(1000)))
    assert memory_leak.judge(result["observed"]["memory_leak"]) == ""
    assert memory_use.judge(result["observed"]["memory_use"]) == ""
    assert result["deviations"] == []


@pytest.mark.parametrize("numel", [100, 100_000])
def test_a_leak_is_told_with_its_size(relu_kernel: Make, relu_inputs: Make, numel: int) -> None:
    """Tensors that are kept are found, down to some hundred bytes a call."""
    kernel = relu_kernel(LEAKS_TENSORS.replace("NUMEL", str(numel)))
    message = memory_leak.judge(observe(kernel, relu_inputs(torch.randn(1000)))["observed"]["memory_leak"])
    assert message.startswith("memory in use (malloc) grows by about")
    grown = int(message.partition("about ")[2].partition(" bytes")[0].replace(",", ""))
    assert 4 * numel <= grown < 4.1 * numel + 1000


def test_mappings_are_memory_too(relu_kernel: Make, relu_inputs: Make) -> None:
    """Memory that did not come from malloc is seen in the address space, though nothing was written to it."""
    result = observe(relu_kernel(LEAKS_MAPPINGS), relu_inputs(torch.randn(1000)))
    message = memory_leak.judge(result["observed"]["memory_leak"])
    assert "(address space) grows by about 1,048,576 bytes a call" in message


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector runs when it is called alone."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_garbage_is_not_leaked(relu_kernel: Make, relu_inputs: Make) -> None:
    """Cycles that wait for Python's collector grow in every call, and are gone when it ran."""
    facts = observe(relu_kernel(LEAVES_GARBAGE), relu_inputs(torch.randn(1000)))["observed"]["memory_leak"]
    assert "second" in facts
    assert memory_leak.judge(facts) == ""


def test_a_slow_kernel_that_settles_is_no_leak(relu_kernel: Make, relu_inputs: Make) -> None:
    """Growth in as few calls as a busy machine makes within the budget is not taken for growth in each call."""
    facts = observe(relu_kernel(SETTLES_SLOWLY), relu_inputs(torch.randn(1000)))["observed"]["memory_leak"]
    assert "second" in facts
    assert memory_leak.judge(facts) == ""


def test_a_kernel_that_counts_its_calls_deviates(relu_kernel: Make, relu_inputs: Make) -> None:
    """The last of many calls must give the first one's answer."""
    result = observe(relu_kernel(COUNTS_ITS_CALLS), relu_inputs(torch.randn(1000)))
    assert "repeat" in [one["probe"] for one in result["deviations"]]


@pytest.mark.parametrize("text", [WASTES, WASTES_AT_FIRST])
def test_more_memory_than_is_reasonable(
    relu_kernel: Make, relu_inputs: Make, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of megabytes, in every call or once and for all, are beyond what kilobytes of inputs excuse."""
    if text == WASTES_AT_FIRST:
        monkeypatch.setattr(memory_use, "FIRST_NBYTES", 0)
    facts = observe(relu_kernel(text), relu_inputs(torch.randn(1000)))["observed"]["memory_use"]
    message = memory_use.judge(facts)
    assert message.startswith("a call took ")
    assert "probes: {memory_use: {off: REASON}}" in message


def test_large_inputs_allow_large_workspaces() -> None:
    """The limit grows with what the call moves."""
    entry = {"when": "later", "set": "fresh", "peak": 2**30, "moved": 2**20}
    assert memory_use.judge([entry]) != ""
    assert memory_use.judge([{**entry, "moved": 2**27}]) == ""
    assert memory_use.judge([{**entry, "when": "first"}]) == ""


def test_inputs_and_outputs_are_not_counted_as_workspace() -> None:
    """What is allocated before the call has the call's own tensors in it."""
    moved = 2**27
    bound = memory_use.FACTOR * moved + memory_use.SLACK_NBYTES
    assert memory_use.judge([{"when": "bind", "set": "fresh", "peak": moved + bound, "moved": moved}]) == ""
    assert (
        memory_use.judge([{"when": "bind", "set": "fresh", "peak": moved + bound + 2**20, "moved": moved}])
        != ""
    )


def test_what_a_process_holds_of_a_gpu_moves_in_grains() -> None:
    """Steps of 2 MiB between calls are a leak if they come again and again, and none if memory comes back."""
    calls = MOST_CALLS_OF_ACCELERATOR + 1
    leaking = [2**21 * (number // 3) for number in range(calls)]
    breathing = [2**21 * (number // 3 % 2) for number in range(calls)]
    for series, leaks in ((leaking, True), (breathing, False)):
        facts = {"first": {"driver": series}, "second": {"own": series}, "kept": {"own": series[-1]}}
        assert bool(memory_leak.judge(facts)) is leaks


def test_free_memory_of_a_gpu_alone_accuses_nobody() -> None:
    """It is the whole GPU's: however it falls, other processes may have taken it."""
    series = [2**23 * number for number in range(33)]
    facts = {"first": {"driver": series}, "second": {"driver": series}, "kept": {"driver": series[-1]}}
    assert memory_leak.judge(facts) == ""


def test_a_leak_of_many_calls_is_no_large_call(
    relu_kernel: Make, relu_inputs: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is measured for itself: a leak is told as a leak, and not as memory that one call takes."""
    monkeypatch.setattr(memory_use, "SLACK_NBYTES", 2**25)  # of 138 calls that leave a MiB each
    kernel = relu_kernel(LEAKS_TENSORS.replace("NUMEL", str(2**18)))
    observed = observe(kernel, relu_inputs(torch.randn(1000)))["observed"]
    assert memory_leak.judge(observed["memory_leak"]) != ""
    assert memory_use.judge(observed["memory_use"]) == ""


def test_what_calls_leave_on_a_gpu_is_limited() -> None:
    """All first calls together may leave what one of them may take."""
    entry = {"when": "kept", "moved": 2**20, "peak": 2**30}
    assert memory_use.judge([entry]) == ""
    message = memory_use.judge([{**entry, "peak": 2**31}])
    assert message.startswith("what calls left on the GPU is 2,048.0 MiB of memory beyond")
