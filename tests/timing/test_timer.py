"""The length of a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.measurement import ArmName
from pytest_cgins.timing.timer import MOST_SEGMENTS, TWINS, calls_for, segments_for

NAMES: tuple[ArmName, ...] = ("kernel", "base", "torch", "compile")
seconds = st.floats(1e-9, 10)
arms = st.dictionaries(st.sampled_from(NAMES), seconds, min_size=1)
targets = st.floats(1e-6, 1e-2)
limits = st.floats(1e-3, 10)


@given(target=targets, taken=arms, limit=limits)
def test_a_batch_reaches_its_length_unless_that_takes_too_long(
    target: float, taken: dict[ArmName, float], limit: float
) -> None:
    """Each arm fills the target, or one call more would pass its share of the limit; twins go by the faster one."""
    calls = calls_for(target, taken, limit)
    assert calls.keys() == taken.keys()
    share = limit / len(taken)
    for name, number in calls.items():
        alike = [taken[twin] for twin in TWINS if twin in taken] if name in TWINS else [taken[name]]
        assert number >= 1
        assert number * min(alike) >= target * (1 - 1e-9) or (number + 1) * max(alike) > share * (1 - 1e-9)
        assert number == 1 or number * max(alike) <= share * (1 + 1e-9)
        assert number == 1 or (number - 1) * min(alike) < target * (1 + 1e-9)


@given(target=targets, taken=arms, limit=limits)
def test_all_batches_together_keep_the_limit(
    target: float, taken: dict[ArmName, float], limit: float
) -> None:
    """Unless an arm's single call takes more than its share."""
    calls = calls_for(target, taken, limit)
    if max(taken.values()) <= limit / len(taken):
        assert sum(calls[name] * one for name, one in taken.items()) <= limit * (1 + 1e-9)


@given(target=targets, kernel=seconds, base=seconds, torch=seconds, limit=limits)
def test_twins_share_one_number(
    target: float, kernel: float, base: float, torch: float, limit: float
) -> None:
    """Kernel and base have as many calls in a batch, whichever is faster; torch's number is its own."""
    calls = calls_for(target, {"kernel": kernel, "base": base, "torch": torch}, limit)
    assert calls["kernel"] == calls["base"]
    swapped = calls_for(target, {"kernel": base, "base": kernel, "torch": torch}, limit)
    assert swapped == calls
    assert calls["torch"] == calls_for(target, {"torch": torch}, limit / 3)["torch"]


def test_known_batches() -> None:
    """1 µs for 300 µs takes 300 calls, 3 µs a third; a clock that saw no time passing is not believed."""
    assert calls_for(300e-6, {"kernel": 1e-6, "torch": 3e-6}, 1.0) == {"kernel": 300, "torch": 100}
    assert calls_for(300e-6, {"kernel": 3e-6, "base": 1e-6}, 1.0) == {"kernel": 300, "base": 300}
    assert calls_for(1e-3, {"kernel": 0.0}, 1.0) == {"kernel": 1_000_000}
    assert calls_for(1e-3, {"kernel": 5.0, "torch": 1e-3}, 1.0) == {"kernel": 1, "torch": 1}
    assert calls_for(1.0, {"kernel": 1e-3, "torch": 1e-3}, 0.1) == {"kernel": 50, "torch": 50}


@given(calls=st.integers(1, 5000), copies=st.integers(1, 256), most=st.integers(1, 5000))
def test_batches_go_through_all_copies(calls: int, copies: int, most: int) -> None:
    """In whole turns, or segment by segment, unless a batch may not be so long; segments are few."""
    batch, segments = segments_for(calls, copies, most)
    assert 1 <= segments <= MOST_SEGMENTS
    if calls >= copies:
        assert (batch % copies, segments) == (0, 1)
        assert calls <= batch < calls + copies
    else:
        assert batch * segments <= copies
        assert batch * segments == copies or batch == most


def test_known_segments() -> None:
    """300 µs of calls of 30 µs on 240 copies; of 1 µs on 16; calls longer than a batch, on 32 copies and on 13."""
    assert segments_for(10, 240, 1000) == (15, 16)
    assert segments_for(300, 16, 1000) == (304, 1)
    assert segments_for(1, 32, 1000) == (2, 16)
    assert segments_for(1, 13, 1000) == (1, 13)
    assert segments_for(6, 13, 1000) == (13, 1)
    assert segments_for(1, 256, 4) == (4, 16)
