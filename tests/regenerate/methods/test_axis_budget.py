"""How a round's methods are shared among the axes, and when a run stops near the peak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.regenerate.methods.axis_budget import (
    ASSUMED_GAP,
    TIES,
    AxisBudget,
    Gaps,
    axis_budget,
    near_peak,
)

GAP = st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 0.0999, 0.1, 0.3, 0.5, 1.0]))
GAPS = st.builds(Gaps, compute=GAP, memory=GAP, latency=GAP)


def size(gaps: Gaps, axis: str) -> float:
    gap = getattr(gaps, axis)
    return ASSUMED_GAP if gap is None else gap


@pytest.mark.parametrize(
    ("compute", "memory", "latency", "expected"),
    [
        (0.05, 0.02, 0.09, (1, 1, 1)),  # all near zero
        (0.9, 0.9, 0.9, (1, 1, 1)),
        (0.5, 0.5, 0.05, (1, 2, 0)),  # 1.5 each: memory before compute
        (0.5, 0.05, 0.5, (1, 0, 2)),  # latency before compute
        (0.05, 0.5, 0.5, (0, 2, 1)),  # memory before latency
        (0.9, 0.1, 0.1, (2, 1, 0)),  # 2.45 is capped; memory's 0.27 before latency's
        (0.9, 0.05, 0.05, (2, 0, 0)),  # one axis alone: two at most
        (0.3, 0.6, 0.1, (1, 2, 0)),
        (0.2, 0.2, 0.6, (0, 1, 2)),
        (0.1, 0.099, 0.0, (2, 0, 0)),
        (None, None, None, (1, 1, 1)),
        (0.5, 0.2, None, (1, 1, 1)),
    ],
)
def test_examples(
    compute: float | None, memory: float | None, latency: float | None, expected: tuple[int, int, int]
) -> None:
    """Shares are 3Δ/ΣΔ by largest remainder, at most 2, 0 below 0.10, ties memory > latency > compute."""
    budget = axis_budget(Gaps(compute=compute, memory=memory, latency=latency))
    assert (budget.compute, budget.memory, budget.latency) == expected


def test_axes_without_data_are_told() -> None:
    """What was assumed is in the answer, for the prompt and the report."""
    assert axis_budget(Gaps(compute=0.5, memory=0.2)).assumed == ("latency",)
    assert axis_budget(Gaps(compute=0.5, memory=0.2, latency=0.5)).assumed == ()


@given(gaps=GAPS)
def test_three_methods_at_most_two_an_axis(gaps: Gaps) -> None:
    """All three are spent unless one axis alone has a gap; below 0.10 nothing, unless all are."""
    budget = axis_budget(gaps)
    open_axes = [axis for axis in TIES if size(gaps, axis) >= 0.10]
    assert budget.total == (2 if len(open_axes) == 1 else 3)
    assert all(0 <= budget.of(axis) <= 2 for axis in TIES)
    if open_axes:
        assert all(budget.of(axis) == 0 for axis in TIES if axis not in open_axes)
    else:
        assert budget == AxisBudget(compute=1, memory=1, latency=1, assumed=budget.assumed)


@given(gaps=GAPS)
def test_a_larger_gap_never_has_fewer(gaps: Gaps) -> None:
    """Order of gaps is order of budgets; equal gaps are ordered by the tie."""
    budget = axis_budget(gaps)
    for place, first in enumerate(TIES):
        for second in TIES[place + 1 :]:
            # Gaps that differ in the tenth digit are the same for rounding.
            if size(gaps, first) >= size(gaps, second) - 1e-12:
                assert budget.of(first) >= budget.of(second)
            elif size(gaps, second) > size(gaps, first) + 1e-6:
                assert budget.of(second) >= budget.of(first)


@given(gaps=GAPS)
def test_no_share_is_far_from_its_quota(gaps: Gaps) -> None:
    """Without the cap, each axis gets its quota rounded up or down."""
    budget = axis_budget(gaps)
    kept = {axis: size(gaps, axis) for axis in TIES if size(gaps, axis) >= 0.10}
    quotas = {axis: 3 * gap / sum(kept.values()) for axis, gap in kept.items()}
    if quotas and max(quotas.values()) <= 2:
        assert all(abs(budget.of(axis) - quota) < 1 + 1e-9 for axis, quota in quotas.items())


def test_a_gap_is_a_share() -> None:
    """A gap that is not a share is a mistake of the caller."""
    with pytest.raises(ValueError, match=r"the gap of memory is 1\.2: it must be from 0 to 1"):
        Gaps(memory=1.2)


def test_a_memory_bound_kernel_stops_at_the_bandwidth() -> None:
    """The larger share decides, although the compute gap stays at nearly 1."""
    found = near_peak(
        compute_share=0.02, memory_share=0.88, gaps=Gaps(compute=0.98, memory=0.12, latency=0.6)
    )
    assert found.stop
    assert found.reason == "near its peak: 88% of the device's bandwidth"
    assert near_peak(compute_share=0.86, memory_share=0.3).stop


def test_what_is_not_near_goes_on() -> None:
    """One number below 85%, no data, and shares that nobody believes stop nothing."""
    assert near_peak(compute_share=0.1, memory_share=0.84).reason == (
        "84% of the device's bandwidth, 85% would be near its peak"
    )
    assert near_peak(compute_share=None, memory_share=None).reason == "no data on how near the peak it is"
    beyond = near_peak(compute_share=0.1, memory_share=1.9)
    assert not beyond.stop
    assert "190% of a peak is not believed" in beyond.reason
    assert not near_peak(compute_share=None, memory_share=None, gaps=Gaps(compute=0.1, memory=0.1)).stop


def test_three_small_gaps_stop_too() -> None:
    """The seed's own rule still holds where a profiler told all three."""
    assert near_peak(
        compute_share=None, memory_share=None, gaps=Gaps(compute=0.1, memory=0.14, latency=0.05)
    ).stop


@given(compute=st.floats(0, 1.15), memory=st.floats(0, 1.15))
def test_it_stops_just_when_the_larger_share_is_near(compute: float, memory: float) -> None:
    """max(compute, memory) ≥ 0.85."""
    assert near_peak(compute_share=compute, memory_share=memory).stop == (max(compute, memory) >= 0.85)
