"""Blocks are redone for the GPU's clock, and for nothing else."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.measurement import Clocks
from pytest_cgins.timing.clock_watch import ClockWatch, Reading, clocks, judge, redos_allowed


def readings(*clocks_mhz: int | None, reasons: tuple[str, ...] = ()) -> list[Reading]:
    return [Reading(one, reasons) for one in clocks_mhz]


def test_a_steady_clock_keeps_all() -> None:
    """So do steps of 15 MHz, which GPUs take all the time."""
    assert judge(readings(1980, 1965, 1980, 1950)) == [None] * 4


def test_a_clock_that_fell_is_named() -> None:
    """With the clock that the others had."""
    assert judge(readings(1980, 1980, 1710, 1980)) == [None, None, "clock 1710 MHz, median 1980 MHz", None]


@pytest.mark.parametrize(
    ("clock", "kept"), [(1000, True), (1020, True), (980, True), (1021, False), (979, False)]
)
def test_the_tolerance_is_two_percent(clock: int, kept: bool) -> None:
    """Either way."""
    assert (judge(readings(clock), kept=readings(*[1000] * 9)) == [None]) is kept


def test_blocks_that_were_kept_count() -> None:
    """A chunk at another clock than all before it is redone whole."""
    assert None not in judge(readings(1500, 1500), kept=readings(*[1980] * 5))


def test_a_reason_that_came_for_a_while_is_a_cause() -> None:
    """Its clock may have been read too late."""
    chunk = [*readings(1980, 1980), Reading(1980, ("hw-thermal",)), *readings(1980)]
    assert judge(chunk) == [None, None, "hw-thermal", None]


def test_a_reason_that_stands_in_most_blocks_is_a_state() -> None:
    """A product of matrices runs at the limit of power: no block would be left."""
    chunk = [*readings(1700, 1710, 1705, reasons=("sw-power-cap",)), *readings(1700)]
    assert judge(chunk) == [None] * 4


def test_half_of_the_blocks_is_not_most() -> None:
    """A tie is told as what it is: no state."""
    assert judge([*readings(1980, reasons=("sw-thermal",)), *readings(1980)]) == ["sw-thermal", None]


def test_where_nothing_is_told_nothing_is_redone() -> None:
    """A MIG part tells neither clocks nor reasons."""
    assert judge(readings(None, None)) == [None, None]
    assert judge(readings(None, 1000, 1000)) == [None] * 3
    assert judge([]) == []
    assert ClockWatch(None).read() == Reading(None)


def test_a_gpu_is_read() -> None:
    """Clock and reasons together."""
    gpu = Mock(sm_mhz=lambda: 1410, throttle_reasons=lambda: ("hw-thermal",))
    assert ClockWatch(gpu).read() == Reading(1410, ("hw-thermal",))


READING = st.builds(
    Reading,
    st.none() | st.integers(200, 3000),
    st.lists(st.sampled_from(["sw-power-cap", "hw-thermal"]), unique=True).map(tuple),
)


@given(st.lists(READING, max_size=20), st.lists(READING, max_size=20))
def test_the_middle_of_all_blocks_is_kept(chunk: list[Reading], kept: list[Reading]) -> None:
    """Each block gets one answer, and without reasons one at the median clock is always kept."""
    assert len(judge(chunk, kept)) == len(chunk)
    bare = [Reading(one.sm_mhz) for one in chunk if one.sm_mhz is not None]
    if len(bare) % 2:
        middle = sorted(bare, key=lambda one: one.sm_mhz or 0)[len(bare) // 2]
        assert judge(bare)[bare.index(middle)] is None


def test_redoing_ends() -> None:
    """After as many as were kept, and eight."""
    assert [redos_allowed(kept) for kept in (0, 9)] == [8, 17]


def test_the_record_holds_what_was_kept_and_why_others_were_not() -> None:
    """Reasons once each; nothing where nothing was told."""
    kept = [*readings(1980, 1980), *readings(1965, reasons=("sw-power-cap",))]
    assert clocks(kept, ["hw-thermal"]) == Clocks(
        sm_mhz=(1980, 1980, 1965), redone=("hw-thermal",), throttled=("sw-power-cap",)
    )
    assert clocks(readings(None, None), []) is None
