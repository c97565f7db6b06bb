"""Timing on a GPU: graphs, rotation, and the loops that stand in for graphs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from pytest_cgins.timing import environment
from pytest_cgins.timing.cuda import CaptureError, GraphTimer, LoopTimer, make_timer
from pytest_cgins.timing.measure import measure
from pytest_cgins.timing.rotation import Rotation, last_level_cache_bytes, plan

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
ONE_COPY = Rotation(copies=1, bytes_per_call=0, cache_bytes=0)
PLENTY = 8 * 2**30


def adding(times: int, elements: int = 2**20) -> Callable[[int], object]:
    """An arm that adds 1 to a vector so many times; each addition is one launch."""
    vector = torch.zeros(elements, device=DEVICE)

    def arm(_: int) -> None:
        for _ in range(times):
            vector.add_(1)

    return arm


def rotating(copies: int, elements: int) -> Callable[[int], object]:
    """An arm that adds 1 to one of so many vectors."""
    vectors = [torch.zeros(elements, device=DEVICE) for _ in range(copies)]
    return lambda index: vectors[index].add_(1)


@pytest.mark.parametrize(("kernel", "reference", "ratio"), [(1, 4, 4.0), (4, 1, 0.25), (2, 2, 1.0)])
def test_a_known_ratio_is_found(kernel: int, reference: int, ratio: float) -> None:
    """Launch counts of a known ratio give a speed-up of about that, in graphs and without a fallback."""
    found = measure(
        {"kernel": adding(kernel), "torch": adding(reference)},
        DEVICE,
        rotation=ONE_COPY,
        budget_s=0.2,
        seed=1,
    )
    assert found.method == "cuda-graph"
    assert found.cache == "warm"
    assert ratio / 1.25 < found.speedup_vs_torch < ratio * 1.25


def test_the_host_s_launch_is_not_timed() -> None:
    """A tiny addition takes about a microsecond in a graph; launched one by one the host needs several."""
    found = measure(
        {"kernel": adding(1, 1024), "torch": adding(1, 1024)}, DEVICE, rotation=ONE_COPY, budget_s=0.1, seed=1
    )
    assert found.method == "cuda-graph"
    assert found.calls_per_batch >= 50
    assert found.kernel.median_ns_per_call < 3000


def test_rotation_leaves_the_cache_behind() -> None:
    """The same addition is slower on copies that outrun L2 twice over than on one that stays in it."""
    elements = 2**22
    cache = last_level_cache_bytes(DEVICE)
    rotation = plan(4 * elements, cache, memory_bytes=PLENTY)
    assert cache > 2**20
    assert rotation.copies > 2
    timed = {}
    for name, chosen in {"cold": rotation, "warm": ONE_COPY}.items():
        arms = {"kernel": rotating(chosen.copies, elements), "torch": rotating(chosen.copies, elements)}
        timed[name] = measure(arms, DEVICE, rotation=chosen, budget_s=0.1, seed=1)
    assert timed["cold"].cache == "cold"
    assert timed["warm"].cache == "warm"
    assert timed["cold"].calls_per_batch % rotation.copies == 0
    assert timed["cold"].kernel.median_ns_per_call > timed["warm"].kernel.median_ns_per_call


def test_every_copy_is_captured_equally_often() -> None:
    """A graph holds whole turns of the copies."""
    used: list[int] = []
    vectors = [torch.zeros(2**16, device=DEVICE) for _ in range(7)]

    def arm(index: int) -> None:
        used.append(index)
        vectors[index].add_(1)

    timer = GraphTimer({"kernel": arm}, copies=7, limit_s=0.1)
    last_graph = used[-timer.calls_per_batch :]
    assert timer.distinct_calls == 7
    assert {last_graph.count(index) for index in range(7)} == {timer.calls_per_batch // 7}


def test_an_arm_that_launches_nothing_is_no_graph() -> None:
    """An empty graph would be infinitely fast: it is not taken for a measurement."""
    with pytest.raises(CaptureError, match="empty"):
        GraphTimer({"kernel": lambda _: None}, copies=1, limit_s=0.1)


def test_loops_are_queued_behind_a_busy_gpu() -> None:
    """The fallback, too, times the GPU and not the host's launches, as long as nothing waits."""
    arms = {"kernel": adding(1, 1024), "torch": adding(1, 1024)}
    for arm in arms.values():
        arm(0)
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(500):
        arms["kernel"](0)
    torch.cuda.synchronize()
    eager_ns = (time.perf_counter_ns() - start) / 500
    timer = LoopTimer(arms, copies=1, limit_s=0.1)
    assert sorted(timer.batch("kernel") for _ in range(9))[4] < 0.8 * eager_ns


def test_memory_that_an_arm_allocates_is_its_own() -> None:
    """An arm that allocates its outputs can be captured, and keeps what it has returned."""
    vector = torch.arange(2**16, device=DEVICE, dtype=torch.float32)
    kept: list[torch.Tensor] = []

    def allocates(_: int) -> None:
        kept[:] = [vector + 1]

    timer, notes = make_timer({"kernel": allocates}, copies=1, limit_s=0.1)
    assert timer.method == "cuda-graph"
    assert notes == ()
    assert timer.batch("kernel") > 0
    assert torch.equal(kept[0], vector + 1)


def test_the_gpu_is_described() -> None:
    """Name, driver and CUDA version are there, and the key does not depend on the index."""
    described = environment.describe(DEVICE)
    assert described.device == "cuda"
    assert described.device_name == torch.cuda.get_device_name(0)
    assert described.cuda == torch.version.cuda
    assert described.driver.split(".")[0].isdigit()
    assert environment.device_key(DEVICE).startswith("gpu-")
