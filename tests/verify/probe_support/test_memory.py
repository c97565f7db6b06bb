"""What a kernel does to memory: `memory_use` and `memory_leak`, through the service that runs it."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_cgins.run.verification_service import VerificationService
from pytest_cgins.verify.probes import memory_leak, memory_use
from pytest_cgins.verify.probes.memory_leak import MOST_CALLS_OF_ACCELERATOR
from tests.run.relu import relu_set

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


def observe(kernel: dict[str, Any]) -> dict[str, Any]:
    """What the service tells of one kernel on one set."""
    one, buffer = relu_set(torch.randn(1000))
    probes = ["memory_use", "memory_leak", "repeat"]
    params = {"kernel": kernel, "device": "cpu", "sets": [one], "probes": probes}
    result, _ = VerificationService().run(params, [buffer])
    assert result["sets"][0]["error"] is None
    return result


@pytest.mark.exam
def test_pools_that_fill_up_are_no_leak(relu_kernel: Make) -> None:
    """A kernel that keeps buffers, one for every address that it meets, holds all probes of memory."""
    result = observe(relu_kernel(HONEST))
    assert memory_leak.judge(result["observed"]["memory_leak"]) == ""
    assert memory_use.judge(result["observed"]["memory_use"]) == ""
    assert result["deviations"] == []


@pytest.mark.exam
@pytest.mark.parametrize("numel", [100, 100_000])
def test_a_leak_is_told_with_its_size(relu_kernel: Make, numel: int) -> None:
    """Tensors that are kept are found, down to some hundred bytes a call."""
    kernel = relu_kernel(LEAKS_TENSORS.replace("NUMEL", str(numel)))
    message = memory_leak.judge(observe(kernel)["observed"]["memory_leak"])
    assert message.startswith("memory in use (malloc) grows by about")
    grown = int(message.partition("about ")[2].partition(" bytes")[0].replace(",", ""))
    assert 4 * numel <= grown < 4.1 * numel + 1000


@pytest.mark.exam
def test_mappings_are_memory_too(relu_kernel: Make) -> None:
    """Memory that did not come from malloc is seen in the address space, though nothing was written to it."""
    result = observe(relu_kernel(LEAKS_MAPPINGS))
    message = memory_leak.judge(result["observed"]["memory_leak"])
    assert "(address space) grows by about 1,048,576 bytes a call" in message


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector runs when it is called alone."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.exam
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("text", [LEAVES_GARBAGE, SETTLES_SLOWLY])
def test_what_grows_and_is_not_leaked(relu_kernel: Make, text: str) -> None:
    """Cycles that are gone when Python's collector ran, and growth in as few calls as a busy machine makes within the budget."""
    facts = observe(relu_kernel(text))["observed"]["memory_leak"]
    assert "second" in facts
    assert memory_leak.judge(facts) == ""


def test_a_kernel_that_counts_its_calls_deviates(relu_kernel: Make) -> None:
    """The last of many calls must give the first one's answer."""
    result = observe(relu_kernel(COUNTS_ITS_CALLS))
    assert "repeat" in [one["probe"] for one in result["deviations"]]


@pytest.mark.exam
@pytest.mark.parametrize("text", [WASTES, WASTES_AT_FIRST])
def test_more_memory_than_reasonable(relu_kernel: Make, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of megabytes, in every call or once and for all, are beyond what kilobytes of inputs excuse."""
    if text == WASTES_AT_FIRST:
        monkeypatch.setattr(memory_use, "FIRST_NBYTES", 0)
    facts = observe(relu_kernel(text))["observed"]["memory_use"]
    message = memory_use.judge(facts)
    assert message.startswith("a call took ")
    assert "probes: {memory_use: {off: REASON}}" in message


GIB = 2**30
BOUND = memory_use.FACTOR * 2**27 + memory_use.SLACK_NBYTES


@pytest.mark.parametrize(
    ("when", "moved", "peak", "trips"),
    [
        # The limit grows with what the call moves, and the first call may take more.
        ("later", 2**20, GIB, True),
        ("later", 2**27, GIB, False),
        ("first", 2**20, GIB, False),
        # What is allocated before the call has the call's own tensors in it.
        ("bind", 2**27, 2**27 + BOUND, False),
        ("bind", 2**27, 2**27 + BOUND + 2**20, True),
        # All first calls together may leave what one of them may take.
        ("kept", 2**20, GIB, False),
        ("kept", 2**20, 2 * GIB, True),
    ],
)
def test_what_is_reasonable_depends_on_the_call(when: str, moved: int, peak: int, trips: bool) -> None:
    """On what it moves, and whether compilers may work in it."""
    message = memory_use.judge([{"when": when, "set": "fresh", "moved": moved, "peak": peak}])
    assert bool(message) is trips
    if trips and when == "kept":
        assert message.startswith("what calls left on the GPU is 2,048.0 MiB of memory beyond")


SHIELDED = """
import contextlib, os
import torch
from pytest_cgins.run.environment import shield
from pytest_cgins.verify.probe_support import memory
with contextlib.suppress(PermissionError):
    os.setgid(65534), os.setuid(65534)
shield()
begun = memory.begin_peak("cpu", at_most=True)
taken = torch.ones(2**25)
print(memory.peak("cpu") - begun)
"""


def test_what_torch_takes_is_bounded_in_a_shielded_process() -> None:
    """There nobody but root may reset it: taken as nothing, it accused each kernel that needs as much as torch."""
    done = subprocess.run([sys.executable, "-c", SHIELDED], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 2**27


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


@pytest.mark.exam
def test_a_leak_of_many_calls_is_no_large_call(relu_kernel: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is measured for itself: a leak is told as a leak, and not as memory that one call takes."""
    monkeypatch.setattr(memory_use, "SLACK_NBYTES", 2**25)  # of 138 calls that leave a MiB each
    kernel = relu_kernel(LEAKS_TENSORS.replace("NUMEL", str(2**18)))
    observed = observe(kernel)["observed"]
    assert memory_leak.judge(observed["memory_leak"]) != ""
    assert memory_use.judge(observed["memory_use"]) == ""
