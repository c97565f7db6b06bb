"""Numbers made from samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing.stats import block_log_ratios, quartiles, speedup

times = st.floats(1.0, 1e9)
blocks = st.integers(1, 20)


@st.composite
def two_arms(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    size = 2 * draw(blocks)
    return tuple(draw(st.lists(times, min_size=size, max_size=size)) for _ in range(2))  # type: ignore[return-value]


@given(samples=st.lists(times, min_size=1))
def test_quartiles_are_those_of_numpy(samples: list[float]) -> None:
    """Linear interpolation between order statistics, as numpy's default has it."""
    spread = quartiles(samples)
    assert np.allclose([spread.low, spread.median, spread.high], np.quantile(samples, [0.25, 0.5, 0.75]))
    assert spread.range == spread.high - spread.low >= 0


def test_quartiles_need_a_sample() -> None:
    """No samples raise instead of giving a NaN that would travel."""
    with pytest.raises(ValueError, match="at least one sample"):
        quartiles([])


@given(arms=two_arms(), factor=st.floats(0.01, 100))
def test_a_kernel_that_is_so_many_times_faster_has_that_speedup(
    arms: tuple[list[float], list[float]], factor: float
) -> None:
    """Multiplying torch's times by a factor multiplies the speed-up by it."""
    kernel, torch = arms
    plain, scaled = speedup(kernel, torch), speedup(kernel, [factor * time for time in torch])
    assert math.isclose(scaled.median, factor * plain.median, rel_tol=1e-9)
    assert scaled.low <= scaled.median <= scaled.high


@given(arms=two_arms())
def test_swapping_the_arms_inverts_the_speedup(arms: tuple[list[float], list[float]]) -> None:
    """Nothing in the definition prefers one arm."""
    kernel, torch = arms
    assert math.isclose(speedup(kernel, torch).median * speedup(torch, kernel).median, 1, rel_tol=1e-9)


def test_a_drift_that_is_linear_in_time_cancels() -> None:
    """In a block K T T K whose times grow by a constant factor a batch, the ratio is that without drift."""
    kernel, torch = [100 * 1.1**0, 100 * 1.1**3], [200 * 1.1**1, 200 * 1.1**2]
    assert math.isclose(block_log_ratios(torch, kernel)[0], math.log(2), rel_tol=1e-12)


@pytest.mark.parametrize(
    ("numerator", "denominator", "words"),
    [
        ([1.0, 1.0], [1.0], "there are 2 and 1"),
        ([1.0], [1.0], "two samples of each arm"),
        ([1.0, 0.0], [1.0, 1.0], "above 0"),
        ([1.0, 1.0], [1.0, math.nan], "finite"),
        ([1.0, math.inf], [1.0, 1.0], "finite"),
    ],
)
def test_half_blocks_and_impossible_times_are_refused(
    numerator: list[float], denominator: list[float], words: str
) -> None:
    """What is no block of times raises."""
    with pytest.raises(ValueError, match=words):
        block_log_ratios(numerator, denominator)
