"""How many copies outrun a cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing.devices import cpu
from pytest_cgins.timing.rotation import (
    LEAST_PLACES,
    MOST_COPIES,
    MOST_SEGMENTS,
    REUSE_FACTOR,
    Rotation,
    plan,
)


@given(bytes_per_call=st.integers(0, 10**10), cache=st.integers(0, 10**9), memory=st.integers(0, 10**11))
def test_copies_outrun_the_cache_or_are_few(bytes_per_call: int, cache: int, memory: int) -> None:
    """Either all copies together pass twice the cache, and one fewer would not; or they are few that stay in it."""
    chosen = plan(bytes_per_call, cache, memory_bytes=memory)
    assert 1 <= chosen.copies <= MOST_COPIES
    assert chosen.copies == 1 or chosen.copies * bytes_per_call <= memory
    if chosen.is_cold(chosen.copies):
        assert chosen.copies == 1 or not chosen.is_cold(chosen.copies - MOST_SEGMENTS)
        assert chosen.copies <= MOST_SEGMENTS or chosen.copies % MOST_SEGMENTS == 0
    else:
        assert chosen.copies in (1, LEAST_PLACES)
        assert chosen.copies == 1 or chosen.copies * bytes_per_call <= cache


@given(bytes_per_call=st.integers(1, 10**8), cache=st.integers(10**6, 10**9))
def test_a_warm_cache_can_be_asked_for(bytes_per_call: int, cache: int) -> None:
    """Then tensors that fit lie in several places, larger ones in one, and nothing is called cold."""
    chosen = plan(bytes_per_call, cache, memory_bytes=10**12, cold=False)
    assert chosen.copies == (LEAST_PLACES if LEAST_PLACES * bytes_per_call <= cache // REUSE_FACTOR else 1)
    assert not chosen.is_cold(chosen.copies)


@pytest.mark.parametrize(
    ("bytes_per_call", "copies", "cold"),
    [
        (4096, 16, False),
        (10**6, 112, True),
        (30 * 10**6, 4, True),
        (100 * 10**6, 2, True),
        (101 * 10**6, 1, True),
    ],
)
def test_known_sizes(bytes_per_call: int, copies: int, cold: bool) -> None:
    """On a cache of 50 MB: tiny tensors stay warm in a few places, medium ones rotate, large ones need no copies."""
    chosen = plan(bytes_per_call, 50 * 10**6, memory_bytes=10**12)
    assert chosen.copies == copies
    assert chosen.is_cold(copies) is cold


def test_fewer_calls_than_copies_may_stay_in_the_cache() -> None:
    """Copies that a batch never reaches do not count."""
    chosen = Rotation(copies=10, bytes_per_call=100, cache_bytes=100)
    assert chosen.is_cold(3)
    assert not chosen.is_cold(REUSE_FACTOR)


def test_an_unknown_cache_is_warm() -> None:
    """Where the size of the cache is not known, nothing is claimed."""
    assert plan(10**9, 0, memory_bytes=10**12) == Rotation(1, 10**9, 0)
    assert not plan(10**9, 0, memory_bytes=10**12).is_cold(1)


def test_the_largest_cache_of_the_cpu_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are read as sysfs writes them; without sysfs the size is unknown."""
    monkeypatch.setattr(cpu, "_CACHES", tmp_path)
    assert cpu.Cpu().last_level_cache_nbytes() == 0
    for index, size in enumerate(["48K\n", "32768K\n", "what\n"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert cpu.Cpu().last_level_cache_nbytes() == 32768 * 1024


@pytest.mark.parametrize(
    ("bytes_per_call", "memory", "copies"),
    [(4096, 10**12, 16), (30 * 10**6, 10**12, 4), (10**9, 10**12, 2), (10**9, 10**9, 1), (0, 0, 2)],
)
def test_each_content_has_a_copy(bytes_per_call: int, memory: int, copies: int) -> None:
    """Two sets of numbers are timed in turn, however large, unless the memory holds one only."""
    assert plan(bytes_per_call, 50 * 10**6, memory_bytes=memory, contents=2).copies == copies
