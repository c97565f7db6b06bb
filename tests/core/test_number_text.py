"""Numbers as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core import number_text

positive = st.floats(min_value=1e-12, max_value=1e12, allow_nan=False)
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@given(positive)
def test_ratio_stays_on_its_side_of_one(value: float) -> None:
    """A rounded ratio is over, under or at the limit exactly when the number is."""
    shown = float(number_text.ratio(value))
    assert ((shown > 1), (shown < 1)) == ((value > 1), (value < 1))
    assert shown == pytest.approx(value, rel=0.0051)


@given(st.floats(min_value=0.01, max_value=1e13, allow_nan=False))
def test_time_can_be_read_back(nanoseconds: float) -> None:
    """A printed time is within half a unit of its third digit of the time that was measured."""
    number, unit = number_text.time_ns(nanoseconds).split(" ")
    assert float(number) * UNITS[unit] == pytest.approx(nanoseconds, rel=0.0051)
    assert unit == "s" or float(number) < 1000


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(1145, "1.15 us"), (999_999, "1 ms"), (0, "0 ns"), (0.25, "0.25 ns"), (42e9, "42 s"), (5e12, "5000 s")],
)
def test_time_units(nanoseconds: float, text: str) -> None:
    """Each time is shown in the unit that fits it."""
    assert number_text.time_ns(nanoseconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.31, "0.31"), (1.0004, "1.0004"), (0.99996, "0.99996"), (123456.0, "123456"), (2.4e-5, "2.4e-05"), (0.0, "0"),
        (math.inf, "inf"), (math.nan, "nan"), (1e299, "1e+299"),
        (number_text.NO_TOLERANCE, "inf"),  # integers are right or wrong: nobody reads that one is 1e+300 times the tolerance
    ],
)  # fmt: skip
def test_ratio_text(value: float, text: str) -> None:
    """Three digits, more where fewer would lie about the limit, words where there is no number."""
    assert number_text.ratio(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.08124, "1.0812x"), (0.9969, "0.9969x"), (1.0, "1.0000x"), (1.4866, "1.487x"), (2.488, "2.49x"), (0.0564, "0.0564x")],
)  # fmt: skip
def test_slowdowns_have_the_digits_that_tolerances_have(value: float, text: str) -> None:
    """Four decimals near 1, where 2.75% pass and 2.8% do not."""
    assert number_text.slowdown(value) == text


def test_speedup_says_times() -> None:
    """A speed-up carries its unit."""
    assert number_text.speedup(1.234) == "1.23x"
