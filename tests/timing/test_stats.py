"""Numbers made from samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing.stats import quartiles

times = st.floats(1.0, 1e9)


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
