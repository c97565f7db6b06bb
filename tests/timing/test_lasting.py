"""Blocks that are correlated: a build that is slow for many blocks in a row, and then is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

import pytest

from pytest_cgins.core.measurement import Comparison
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import LOOK_BLOCKS, BlockSampler, Prepared
from pytest_cgins.timing.sequential import LASTING, Rule
from pytest_cgins.timing.stats import chance_of_so_few_runs

RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=1, most_blocks=64)
Ratios = Callable[[random.Random], Iterator[float]]
READY = Prepared(
    arms=("kernel", "base", "torch"), method="cuda-graph", calls=dict.fromkeys(("kernel", "base", "torch"), 100),
    batch_seconds=dict.fromkeys(("kernel", "base", "torch"), 3e-4), host_ns_per_call={}, cold=True,
)  # fmt: skip


def states(blocks: float, size: float, *, slowdown: float = 0.0) -> Ratios:
    """The kernel is slow for so many blocks on average, and then fast."""

    def drawn(draw: random.Random) -> Iterator[float]:
        side = draw.choice((-1, 1))
        while True:
            if draw.random() < 1 / blocks:
                side = -side
            yield math.log1p(slowdown) + side * math.log1p(size) + draw.gauss(0, 0.005)

    return drawn


def correlated(rho: float, sigma: float, *, slowdown: float) -> Ratios:
    """Each block's noise hangs on the last one's."""

    def drawn(draw: random.Random) -> Iterator[float]:
        value = draw.gauss(0, 1)
        while True:
            yield math.log1p(slowdown) + sigma * value
            value = rho * value + math.sqrt(1 - rho**2) * draw.gauss(0, 1)

    return drawn


def compared(ratios: Ratios, seed: int, rule: Rule = RULE) -> tuple[Comparison, Comparison]:
    """As proven, and after a look at further blocks."""
    drawn = ratios(random.Random(seed))

    def take(orders: Sequence[str]) -> list[Block]:
        return [
            Block(order=order, ns_per_call=tuple(1e4 * (ratio if letter == "K" else 1.0) for letter in order))
            for order, ratio in zip(orders, map(math.exp, drawn), strict=False)
        ]

    sampler = BlockSampler(READY, seed=seed, base=rule)
    sampler.run(take)
    (proven,) = sampler.comparisons()
    sampler.check_autocorrelation(take)
    (found,) = sampler.comparisons()
    assert sampler.lasting == (found.runs is not None and found.runs < LASTING)
    return proven, found


def share(ratios: Ratios, *, times: int = 120) -> tuple[float, float]:
    """Of kernels that are slower, before and after the look."""
    both = [compared(ratios, seed) for seed in range(times)]
    before, after = ([one.outcome for one in side] for side in zip(*both, strict=True))
    return before.count("slower") / times, after.count("slower") / times


@pytest.mark.exam
@pytest.mark.parametrize(
    ("ratios", "most"),
    [
        pytest.param(states(30, 0.035), 0.1, id="30-blocks"),
        pytest.param(states(10, 0.035), 0.02, id="10-blocks"),
        pytest.param(states(5, 0.2), 0.02, id="5-blocks"),
        pytest.param(correlated(0.9, 0.03, slowdown=0.02), 0.1, id="correlated"),
    ],
)
def test_states_that_last_are_seen(ratios: Ratios, most: float) -> None:
    """Of kernels that are not slower, or just on the bound: in one process at N = 1, where it is hardest."""
    before, after = share(ratios)
    assert after <= most
    assert before >= 2 * after


@pytest.mark.parametrize(
    "ratios",
    [
        pytest.param(correlated(0.0, 0.01, slowdown=0.05), id="5%"),
        pytest.param(correlated(0.0, 0.001, slowdown=0.03), id="3%-quiet"),
        pytest.param(correlated(0.95, 0.005, slowdown=0.08), id="8%-and-drift"),
        pytest.param(states(30, 0.02, slowdown=0.08), id="8%-and-states"),
        pytest.param(correlated(0.0, 0.0, slowdown=0.05), id="no-noise"),
    ],
)
def test_what_is_slower_in_all_states_stays_slower(ratios: Ratios) -> None:
    """Only changes of side count: a drift above the bound is no excuse."""
    before, after = share(ratios, times=60)
    assert after >= before - 0.03
    assert before > 0.95


def test_the_test_s_own_blocks_stay_as_they_were() -> None:
    """What is looked at beyond the proof is not tested, and nothing is looked at where nothing is proven."""
    proven, found = compared(correlated(0.0, 0.001, slowdown=0.05), 1)
    assert found.log_ratios == proven.log_ratios
    assert len(found.log_ratios) < LOOK_BLOCKS
    assert found.runs == 1.0
    assert compared(correlated(0.0, 0.001, slowdown=0.0), 1)[1].runs is None


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 5), (4, 4), (7, 2)])
def test_the_chance_of_so_few_runs_is_counted(n: int, m: int) -> None:
    """Over all orders of as many signs of each."""
    rows = [[at in chosen for at in range(n + m)] for chosen in combinations(range(n + m), n)]
    runs = [1 + sum(one != following for one, following in pairwise(row)) for row in rows]
    for row, own in zip(rows, runs, strict=True):
        expected = sum(other <= own for other in runs) / len(rows)
        assert chance_of_so_few_runs(row) == pytest.approx(expected)
    assert chance_of_so_few_runs([True] * n) == 1.0
