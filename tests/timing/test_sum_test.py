"""Costs that come rarely: medians of blocks hide them, sums of calls do not."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.core import documents
from pytest_cgins.core.measurement import ArmName, Comparison, Measurement
from pytest_cgins.timing.block import LETTER_ARMS, Block
from pytest_cgins.timing.block_sampler import UNSUMMED, BlockSampler, Prepared
from pytest_cgins.timing.sequential import Rule, SequentialTest
from pytest_cgins.timing.sum_test import LEAST_CALLS, SumTest, can_prove, with_sums

RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=400, most_blocks=64)
Call = Callable[[int, random.Random], float]
"""How long an arm's nth call takes."""


def plain(_: int, draw: random.Random) -> float:
    return 300_000 * math.exp(draw.gauss(0, 0.01))


def every(period: int, factor: float) -> Call:
    return lambda n, draw: plain(n, draw) * (factor if n % period == period - 1 else 1.0)


def at_random(share: float, factor: float) -> Call:
    return lambda n, draw: plain(n, draw) * (factor if draw.random() < share else 1.0)


def growing(n: int, draw: random.Random) -> float:
    """A table that is rehashed in whole, longer each time."""
    return plain(n, draw) * (n / 2 if n & (n + 1) == 0 else 1.0)


def faster_but(period: int, factor: float) -> Call:
    return lambda n, draw: 0.9 * every(period, factor)(n, draw)


class Device:
    """Runs calls in batches of loops, of which the middle one counts, as the host's timer does."""

    def __init__(self, *, seed: int = 1, loops: int = 1, calls: int = 1, **arms: Call) -> None:
        self.blocks = 0
        self._arms, self._loops, self._calls = arms, loops, calls
        self._at = dict.fromkeys(arms, 0)
        self._draw = random.Random(seed)

    def take(self, orders: Sequence[str]) -> list[Block]:
        self.blocks += len(orders)
        return [self._block(order) for order in orders]

    def _block(self, order: str) -> Block:
        batches = [
            [statistics.fmean(self._call(LETTER_ARMS[letter]) for _ in range(self._calls)) for _ in range(self._loops)]
            for letter in order
        ]  # fmt: skip
        return Block(
            order=order,
            ns_per_call=tuple(map(statistics.median, batches)),
            mean_ns_per_call=tuple(map(statistics.fmean, batches)),
        )

    def _call(self, arm: ArmName) -> float:
        self._at[arm] += 1
        return self._arms[arm](self._at[arm] - 1, self._draw)


def measured(
    kernel: Call, base: Call = plain, *, seed: int = 1, loops: int = 1, calls: int = 1, batch_s: float = 3e-4,
    rule: Rule = RULE, floor: float | None = None,
) -> tuple[Measurement, Device]:  # fmt: skip
    arms: tuple[ArmName, ...] = ("kernel", "torch") if floor else ("kernel", "base", "torch")
    device = Device(seed=seed, loops=loops, calls=calls, kernel=kernel, base=base, torch=base)
    prepared = Prepared(
        arms=arms, method="perf-counter", calls=dict.fromkeys(arms, loops * calls),
        batch_seconds=dict.fromkeys(arms, batch_s), host_ns_per_call={}, cold=True,
    )  # fmt: skip
    sampler = BlockSampler(
        prepared, seed=seed, sums=True, base=None if floor else rule, floor=(rule, floor) if floor else None
    )
    sampler.run(device.take)
    return sampler.measurement(), device


def compared(kernel: Call, base: Call = plain, **changes: object) -> Comparison:
    return measured(kernel, base, **changes)[0].comparisons[0]  # type: ignore[arg-type]


# ---- what medians hide


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        pytest.param(every(31, 41), {}, id="31st-call-41-times"),
        pytest.param(every(32, 41), {}, id="at-the-horizon"),
        pytest.param(every(500, 67), {"loops": 5, "calls": 50}, id="20-ms-in-500-calls-of-many"),
        pytest.param(every(25, 3), {"loops": 5, "calls": 5}, id="in-the-same-loop-of-each-batch"),
        pytest.param(at_random(1 / 6, 30), {}, id="by-lot"),
        pytest.param(faster_but(16, 20), {}, id="faster-but-for-it"),
    ],
)
def test_a_cost_that_comes_rarely_is_proven(kernel: Call, shape: dict[str, int]) -> None:
    """Where the medians alone would call it the same, or even faster; in few superblocks."""
    found = compared(kernel, **shape)
    assert found.sums is not None
    assert found.outcome == found.sums.outcome == "slower"
    assert found.log_e_slower < math.log(found.tests / found.alpha)
    assert found.sums.calls >= LEAST_CALLS
    assert found.sums.ratio > 1.05
    assert len(found.sums.log_ratios) <= 40


def test_a_cost_that_comes_rarely_is_proven_in_18_superblocks() -> None:
    """As few as prove anything among 400 tests, 0.36 s of calls of 300 µs."""
    found = compared(every(31, 41))
    assert found.sums is not None
    assert len(found.sums.log_ratios) == 18
    assert found.sums.ratio == pytest.approx(2.3, rel=0.2)


def test_a_floor_is_held_by_sums_too() -> None:
    """Against torch, whose speed is declared."""
    found = compared(every(31, 41), floor=1.0)
    assert (found.against, found.outcome) == ("torch", "slower")
    assert compared(plain, floor=0.9).outcome == "faster"


@pytest.mark.parametrize("base", [every(31, 41), every(20, 25), every(16, 20)])
def test_a_rare_cost_that_is_gone_is_no_slowdown(base: Call) -> None:
    """The median call is 4% slower, the sum less than half as long: whoever runs it gains."""
    found = compared(lambda n, draw: 1.04 * plain(n, draw), base)
    assert found.sums is not None
    assert found.log_e_slower >= math.log(found.tests / found.alpha)
    assert (found.sums.outcome, found.outcome) == ("faster", "faster")
    assert compared(lambda n, draw: 1.04 * plain(n, draw)).outcome == "slower"


def test_what_comes_less_often_than_the_horizon_is_not_seen() -> None:
    """And the record says how far it looks."""
    found = compared(every(5000, 1000), loops=1, calls=1)
    assert found.outcome == "clean"
    assert found.sums is not None
    assert found.sums.calls == LEAST_CALLS


# ---- what it costs and never does


@pytest.mark.parametrize(("calls", "blocks"), [(1, 16), (2, 9), (30, 9)])
def test_an_unchanged_kernel_takes_one_sum(calls: int, blocks: int) -> None:
    """Of blocks that the medians need anyway, unless a batch is a single call."""
    found, device = measured(plain, calls=calls)
    (test,) = found.comparisons
    assert test.sums is not None
    assert (test.outcome, test.sums.outcome, len(test.sums.log_ratios)) == ("clean", "alike", 1)
    assert test.sums.calls >= LEAST_CALLS
    assert device.blocks == blocks == len(found.orders.split())


@pytest.mark.parametrize("share", [0.002, 0.02, 0.2])
def test_hiccups_of_the_machine_are_nobody_s(share: float) -> None:
    """They hit either arm by chance: nothing is proven by them, and the most of such kernels stay clean."""
    hit = at_random(share, 40)
    outcomes = [compared(hit, hit, seed=seed, calls=2).outcome for seed in range(12)]
    assert not {"slower", "faster"} & {*outcomes}
    assert outcomes.count("clean") >= (10 if share < 0.1 else 1)


def long_tail(source: np.random.Generator, runs: int) -> list[list[float]]:
    """Sums without a mean: |Cauchy| times, in both arms."""
    times = np.abs(source.standard_cauchy((2, runs, 24, 32))).sum(axis=3)
    return (np.log(times[0]) - np.log(times[1]) + RULE.slower_bound).tolist()  # type: ignore[no-any-return]


def ties(source: np.random.Generator, runs: int) -> list[list[float]]:
    """A coarse clock: many sums lie on the bound itself."""
    return (RULE.slower_bound + 0.1 * source.integers(-1, 2, (runs, 24))).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("noise", [long_tail, ties])
def test_sums_on_the_bound_alarm_no_more_often_than_alpha(
    noise: Callable[[np.random.Generator, int], list[list[float]]],
) -> None:
    """Whatever their tail: 400 tests at 5%, each looked at after every superblock."""
    rule = Rule(tolerate=0.02, catch=0.05, alpha=0.05, beta=0.01, tests=1, most_blocks=24)
    alarms = 0
    for row in noise(np.random.default_rng(6), 400):
        test = SumTest(rule, calls=32)
        for one in row:
            if test.open:
                test.add(one)
        alarms += test.outcome == "slower"
    assert alarms <= 20 + 3 * math.sqrt(20)


def test_calls_that_take_too_long_are_told() -> None:
    """No sums are taken that could prove nothing; a reader learns what is not seen."""
    found, _ = measured(plain, batch_s=0.06)
    assert found.comparisons[0].sums is None
    assert UNSUMMED in found.notes
    assert UNSUMMED not in measured(plain)[0].notes


# ---- the test by itself


@given(st.lists(st.sampled_from([-0.5, -0.03, 0.0, 0.021, 0.03, 0.5]), min_size=1, max_size=64))
@settings(deadline=None, max_examples=60)
def test_outcomes_are_what_the_sums_say(values: list[float]) -> None:
    """A proof by its threshold, a suspicion by the first one, and no further sum where there is none."""
    test = SumTest(RULE, calls=32)
    taken = 0
    while test.open and taken < len(values):
        test.add(values[taken])
        taken += 1
    sums = test.sums()
    assert sums.log_ratios == tuple(values[:taken])
    assert (sums.outcome == "slower") == (sums.log_e_slower >= RULE.log_proof)
    assert (sums.outcome == "faster") == (sums.log_e_faster >= RULE.log_proof)
    if abs(values[0]) <= RULE.clean_bound:
        assert (taken, sums.outcome) == (1, "alike")
    if test.open:
        assert sums.outcome == ("maybe-slower" if values[0] > 0 else "maybe-faster")
    else:
        with pytest.raises(ValueError, match="the test of sums ended after"):
            test.add(0.0)


@pytest.mark.parametrize(
    ("median", "sums", "together"),
    [
        (0.0, 0.5, "slower"),
        (-0.1, 0.5, "slower"),
        (0.1, 0.5, "slower"),
        (0.1, -0.5, "faster"),
        (0.0, -0.5, "clean"),
        (-0.1, -0.5, "faster"),
        (0.1, 0.0, "slower"),
        (0.0, 0.0, "clean"),
    ],
)
def test_what_both_prove_together(median: float, sums: float, together: str) -> None:
    """Slow sums are slow whatever the medians are; fast ones excuse a slower median."""
    by_median, by_sum = SequentialTest(RULE), SumTest(RULE, calls=32)
    while not by_median.done:
        by_median.add(median)
    while by_sum.open:
        by_sum.add(sums)
    assert with_sums(by_median.comparison("base"), by_sum.sums()).outcome == together


def test_a_suspicion_that_is_left_open_is_inconclusive() -> None:
    """A kernel whose sums seem slow is not cleared by its medians; one that seems fast is."""
    by_median = SequentialTest(RULE)
    while not by_median.done:
        by_median.add(0.0)
    outcomes = []
    for first in (0.5, -0.5):
        test = SumTest(RULE, calls=32)
        test.add(first)
        outcomes.append(with_sums(by_median.comparison("base"), test.sums()).outcome)
    assert outcomes == ["inconclusive", "clean"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    """With the value."""
    with pytest.raises(ValueError, match=f"a log ratio of sums is {value}: its times must be finite"):
        SumTest(RULE, calls=32).add(value)


def test_what_can_prove_something() -> None:
    """18 sums of one sign do among 400 tests."""
    assert [can_prove(Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=400, most_blocks=n)) for n in (17, 18)] == [False, True]  # fmt: skip


def test_reports_without_sums_are_read() -> None:
    """As older versions wrote them: nothing is known of sums, and the rest is what it was."""
    (found,) = measured(plain)[0].comparisons
    plainly = documents.dump_python(found)
    del plainly["sums"], plainly["runs"]
    assert documents.load_python(Comparison, plainly) == replace(found, sums=None)
