"""The length of a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing.timer import calls_for

seconds = st.floats(1e-9, 10)


@given(target=st.floats(1e-6, 1e-2), kernel=seconds, torch=seconds, limit=st.floats(1e-3, 10))
def test_a_batch_reaches_its_length_unless_that_takes_too_long(
    target: float, kernel: float, torch: float, limit: float
) -> None:
    """The fastest arm fills the target, or one call more of both would pass the limit."""
    calls = calls_for(target, {"kernel": kernel, "torch": torch}, limit)
    fills = calls * min(kernel, torch) >= target * (1 - 1e-9)
    passes = (calls + 1) * (kernel + torch) > limit * (1 - 1e-9)
    assert calls >= 1
    assert fills or passes
    assert calls == 1 or calls * (kernel + torch) <= limit * (1 + 1e-9)


def test_known_batches() -> None:
    """1 µs against 3 µs for 300 µs takes 300 calls; a clock that saw no time passing is not believed."""
    assert calls_for(300e-6, {"kernel": 1e-6, "torch": 3e-6}, 1.0) == 300
    assert calls_for(1e-3, {"kernel": 0.0, "torch": 0.0}, 1.0) == 1_000_000
    assert calls_for(1e-3, {"kernel": 5.0, "torch": 5.0}, 1.0) == 1
