"""Noise within processes and between them, from samples whose noise is known."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.timing.process_noise import (
    ALARMING,
    Levels,
    ProcessNoise,
    _chi_squared_low,
    as_of_normal,
    estimate,
)
from pytest_cgins.timing.sequential import Rule

PROCESSES, BLOCKS, CASES = 10, 64, 2


def drawn(
    draw: random.Random,
    *,
    tau: float,
    sigma: float,
    rho: float = 0.0,
    offset: float = 0.0,
    processes: int = PROCESSES,
    blocks: int = BLOCKS,
) -> Levels:
    """Normal blocks, each correlated with the one before (AR(1)), about a normal level a process."""
    rows = []
    for _ in range(processes):
        level = offset + draw.gauss(0, tau)
        value = draw.gauss(0, 1)
        row = []
        for _ in range(blocks):
            row.append(level + sigma * value)
            value = rho * value + math.sqrt(1 - rho**2) * draw.gauss(0, 1)
        rows.append(row)
    return rows


def estimates(times: int, **noise: float) -> list[ProcessNoise]:
    draw = random.Random(11)
    return [estimate([drawn(draw, **noise) for _ in range(CASES)]) for _ in range(times)]  # type: ignore[arg-type]


def rms(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value**2 for value in values))


@pytest.mark.parametrize("tau", [0.003, 0.01, 0.05])
@pytest.mark.parametrize("sigma", [0.005, 0.02])
def test_what_was_drawn_is_found(tau: float, sigma: float) -> None:
    """Spread and σ on average over calibrations; single ones within what 18 degrees of freedom and the blocks allow."""
    found = estimates(60, tau=tau, sigma=sigma)
    assert rms([one.spread for one in found]) == pytest.approx(tau, rel=0.12)
    assert statistics.fmean(one.sigma for one in found) == pytest.approx(sigma, rel=0.05)
    assert sum(abs(one.spread - tau) < 0.6 * tau + 0.002 for one in found) >= 57


def test_the_upper_bound_holds() -> None:
    """In 95 of 100 calibrations, about, the spread is below it."""
    found = estimates(200, tau=0.01, sigma=0.01)
    assert 180 <= sum(one.spread_upper > 0.01 for one in found) <= 200
    assert statistics.median(one.spread_upper for one in found) < 0.02


def test_no_spread_is_made_of_blocks_noise() -> None:
    """Where processes do not differ, σ alone gives a spread well below the medians' own noise, and often none."""
    own = math.sqrt(math.pi / 2 / BLOCKS) * 0.02
    found = [one.spread for one in estimates(60, tau=0.0, sigma=0.02)]
    assert statistics.median(found) < own / 2
    assert sum(one == 0 for one in found) > 15


@pytest.mark.parametrize("rho", [-0.2, 0.0, 0.1, 0.3, 0.6])
def test_correlation_of_blocks_is_found(rho: float) -> None:
    """That of the blocks, though only signs are looked at; its centre and its error are right."""
    found = estimates(60, tau=0.01, sigma=0.01, rho=rho)
    assert statistics.fmean(one.rho for one in found) == pytest.approx(rho, abs=0.02 + abs(rho) / 20)
    if rho == 0:
        assert statistics.stdev(one.rho for one in found) == pytest.approx(found[0].rho_error, rel=0.3)


def test_alarms_are_for_blocks_that_hang_on_each_other() -> None:
    """Independent ones alarm rarely, ρ of 0.2 nearly always."""
    assert sum(one.alarming for one in estimates(100, tau=0.01, sigma=0.01)) <= 10
    assert sum(one.alarming for one in estimates(50, tau=0.01, sigma=0.01, rho=0.2)) >= 45


def test_what_two_builds_differ_by_is_no_spread() -> None:
    """A distance that is there in every process is told apart."""
    draw = random.Random(5)
    found = estimate([drawn(draw, tau=0.001, sigma=0.01, offset=-0.03), drawn(draw, tau=0.001, sigma=0.01)])
    assert found.offset == pytest.approx(0.03, abs=0.002)
    assert found.spread < 0.004


@pytest.mark.parametrize("blocks", [3, 4, 63])
def test_ties_and_odd_numbers(blocks: int) -> None:
    """A clock that gives one number gives no noise; the process's median is no sign."""
    found = estimate([[[0.01] * blocks] * 3])
    assert (found.spread, found.spread_upper, found.sigma) == (0, 0, 0)
    assert found.offset == pytest.approx(0.01)
    assert not found.alarming


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([], "from at least one case"),
        ([[[0.0] * 5] * 2], "from 3 processes of 3 blocks at least"),
        ([[[0.0] * 5, [0.0] * 5, [0.0] * 2]], "from 3 processes of 3 blocks at least"),
        ([[[0.0] * 5] * 3, [[0.0, math.nan, 0.0]] * 3], "is not finite"),
    ],
)
def test_what_is_no_sample(cases: list[Levels], message: str) -> None:
    """Too little, or no numbers."""
    with pytest.raises(ValueError, match=message):
        estimate(cases)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(3, 8).flatmap(
        lambda blocks: st.lists(
            st.lists(st.lists(st.floats(-5, 5), min_size=blocks, max_size=blocks), min_size=3, max_size=5),
            min_size=1,
            max_size=3,
        )
    )
)
def test_any_sample_has_an_estimate(cases: list[list[list[float]]]) -> None:
    """Finite, within its bounds, the same whichever case comes first; turned round it only changes sides."""
    found = estimate(cases)
    assert 0 <= found.spread <= found.spread_upper < math.inf
    assert 0 <= found.sigma < math.inf
    assert -1 <= found.rho <= 1
    assert found.rho_error > 0
    other = estimate(cases[::-1])
    assert other.spread == pytest.approx(found.spread, abs=1e-6)
    mirrored = estimate([[[-block for block in row] for row in rows] for rows in cases])
    assert mirrored.spread == pytest.approx(found.spread, abs=1e-6)
    assert mirrored.rho == pytest.approx(found.rho)


def test_signs_tell_of_normal_values() -> None:
    """sin(πr/2) at its ends, and where the alarm is."""
    assert (as_of_normal(-1), as_of_normal(0), as_of_normal(2)) == (-1, 0, 1)
    assert as_of_normal(2 / math.pi * math.asin(ALARMING)) == pytest.approx(ALARMING)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(2, 0.103), (4, 0.7107), (9, 3.325), (18, 9.390), (72, 53.46)]
)
def test_quantiles_of_chi_squared(freedom: int, quantile: float) -> None:
    """As in tables; from 4 degrees of freedom on within 3%, and too small rather than too great: bounds are too wide."""
    found = _chi_squared_low(freedom)
    assert found == pytest.approx(quantile, rel=0.03 if freedom > 3 else 0.3)
    assert found < quantile * 1.001


@pytest.mark.parametrize("tau", [0.0034, 0.007, 0.02])
@pytest.mark.parametrize("slowdown", [0.018, 0.02])
def test_a_suite_on_what_is_tolerated_has_hardly_an_alarm(tau: float, slowdown: float) -> None:
    """200 kernels slower by just that, by calibrations of ten processes: one lies above δ₀ in both of its processes in
    at most 1% of suites. By three times the estimated spread, or 2% if that is more, it had been up to 90%."""
    rule = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=400, most_blocks=64)
    chances = []
    for found in estimates(40, tau=tau, sigma=0.005):
        margin = rule.beside_spread(found.spread_upper).slower_bound - math.log1p(slowdown)
        above = 1 - statistics.NormalDist(0, tau).cdf(margin)
        chances.append(1 - (1 - above**2) ** 200)
    assert statistics.fmean(chances) <= 0.01
