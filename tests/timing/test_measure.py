"""Interleaved timing, on the host."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from pytest_cgins.timing.measure import LEAST_BLOCKS, MOST_BLOCKS, measure
from pytest_cgins.timing.rotation import Rotation

ONE_COPY = Rotation(copies=1, bytes_per_call=0, cache_bytes=0)


def busy(rounds: int) -> Callable[[int], object]:
    """An arm that computes for a time in proportion to `rounds`."""

    def arm(_: int) -> None:
        for _ in range(rounds):
            pass

    return arm


@pytest.mark.parametrize(
    ("kernel", "torch", "low", "high"),
    [(300, 3000, 2.0, 50.0), (3000, 300, 0.02, 0.5), (1000, 1000, 0.4, 2.5)],
)
def test_the_faster_arm_is_found(kernel: int, torch: int, low: float, high: float) -> None:
    """Arms that do ten times, a tenth of, and as much as each other's work, on a host that is not idle."""
    found = measure(
        {"kernel": busy(kernel), "torch": busy(torch)}, "cpu", rotation=ONE_COPY, budget_s=0.15, seed=1
    )
    assert low < found.speedup_vs_torch < high
    assert found.speedup_low <= found.speedup_vs_torch <= found.speedup_high
    assert found.method == "perf-counter"


def test_blocks_are_palindromes_in_random_order() -> None:
    """Each block runs the arms in some order and then back; the seed repeats the orders."""

    def orders(seed: int) -> list[str]:
        arms = {"kernel": busy(10), "torch": busy(10)}
        return measure(arms, "cpu", rotation=ONE_COPY, budget_s=0.1, seed=seed).orders.split()

    first, second = orders(3), orders(3)
    shared = min(len(first), len(second))
    assert first[:shared] == second[:shared]
    assert set(first) <= {"KTTK", "TKKT"}
    assert len(set(first)) == 2


def test_the_samples_fit_the_orders() -> None:
    """Two samples of every arm a block, and their summary."""
    found = measure(
        {"kernel": busy(100), "torch": busy(100)}, "cpu", rotation=ONE_COPY, budget_s=0.05, seed=0
    )
    blocks = len(found.orders.split())
    assert LEAST_BLOCKS <= blocks <= MOST_BLOCKS
    for arm in (found.kernel, found.torch):
        assert len(arm.samples_ns_per_call) == 2 * blocks
        assert min(arm.samples_ns_per_call) <= arm.median_ns_per_call <= max(arm.samples_ns_per_call)
        assert arm.median_ns_per_call * found.calls_per_batch > 0.2e6


def test_a_slow_arm_gets_the_least_number_of_blocks() -> None:
    """A budget that is too small for three blocks is passed, not obeyed: fewer would say nothing."""
    arms = {"kernel": busy(200_000), "torch": busy(200_000)}
    found = measure(arms, "cpu", rotation=ONE_COPY, budget_s=0.001, seed=0)
    assert len(found.orders.split()) == LEAST_BLOCKS
    assert found.calls_per_batch == 1


def test_the_copies_are_taken_in_turn() -> None:
    """Every copy is used as often as any other, by both arms, and the result is called cold."""
    used: dict[str, Counter[int]] = {"kernel": Counter(), "torch": Counter()}

    def count(index: int, name: str) -> None:
        used[name][index] += 1
        busy(50)(0)

    found = measure(
        {"kernel": lambda i: count(i, "kernel"), "torch": lambda i: count(i, "torch")},
        "cpu",
        rotation=Rotation(copies=3, bytes_per_call=100, cache_bytes=100),
        budget_s=0.03,
        seed=0,
    )
    assert found.cache == "cold"
    assert found.notes == ()
    for counter in used.values():
        assert set(counter) == {0, 1, 2}
        assert max(counter.values()) - min(counter.values()) <= 1


def test_a_warm_cache_is_said() -> None:
    """Without rotation the measurement carries a note."""
    found = measure({"kernel": busy(10), "torch": busy(10)}, "cpu", rotation=ONE_COPY, budget_s=0.01, seed=0)
    assert found.cache == "warm"
    assert "warm cache" in found.notes[0]


def test_no_garbage_is_collected_during_a_batch() -> None:
    """The collector is off while an arm runs, and on again afterwards."""
    states: set[bool] = set()
    arms = {"kernel": lambda _: states.add(gc.isenabled()), "torch": busy(1)}
    measure(arms, "cpu", rotation=ONE_COPY, budget_s=0.01, seed=0)
    assert states == {False}
    assert gc.isenabled()


def test_an_error_of_an_arm_passes_through() -> None:
    """Timing does not hide that a kernel fails when called often, and leaves the collector on."""

    def fail(_: int) -> None:
        raise RuntimeError("only once")

    with pytest.raises(RuntimeError, match="only once"):
        measure({"kernel": fail, "torch": busy(1)}, "cpu", rotation=ONE_COPY, budget_s=0.01, seed=0)
    assert gc.isenabled()


def test_the_last_batch_is_announced_and_not_counted() -> None:
    """Whoever wants to see the last answers hears of the batch that gives them, whose time is no sample."""
    calls: list[int] = []
    heard: list[tuple[str, int, int]] = []
    found = measure(
        {"kernel": calls.append, "torch": busy(100)},
        "cpu",
        rotation=ONE_COPY,
        budget_s=0.05,
        seed=0,
        before_last=lambda method, distinct: heard.append((method, distinct, len(calls))),
    )
    ((method, distinct, before),) = heard
    assert (method, distinct) == ("perf-counter", 1)
    assert len(calls) - before == found.calls_per_batch
    assert len(found.kernel.samples_ns_per_call) == 2 * len(found.orders.split())
