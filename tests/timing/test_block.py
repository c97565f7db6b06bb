"""One block: its order, its times, and its log ratio."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.measurement import ARM_LETTERS, ArmName
from pytest_cgins.timing.block import LETTER_ARMS, Block, draw_order
from pytest_cgins.timing.timer import TWINS

NAMES: tuple[ArmName, ...] = ("kernel", "base", "torch", "compile")
some_arms = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
times = st.floats(1e-3, 1e9)


def block(order: str, *ns_per_call: float) -> Block:
    return Block(order=order, ns_per_call=ns_per_call)


@given(arms=some_arms, seed=st.integers(0, 10_000))
def test_an_order_is_a_palindrome_of_all_arms(arms: list[ArmName], seed: int) -> None:
    """Each arm comes twice, as far from the block's middle before it as after it."""
    order = draw_order(arms, random.Random(seed))
    assert order == order[::-1]
    assert Counter(order) == {ARM_LETTERS[arm]: 2 for arm in arms}


@given(others=st.sets(st.sampled_from(["torch", "compile"])), seed=st.integers(0, 10_000))
def test_no_arm_beside_twins_is_its_own_neighbour(others: set[ArmName], seed: int) -> None:
    """Not in a block, and not where one block meets the next: both begin and end with the kernel or its base."""
    choice = random.Random(seed)
    arms: list[ArmName] = [*TWINS, *sorted(others)]
    row = "".join(draw_order(arms, choice) for _ in range(4))
    doubled = {one for one, next_one in pairwise(row) if one == next_one}
    assert doubled <= {"K", "B"}
    for start in range(0, len(row), 2 * len(arms)):
        assert {row[start], row[start + len(arms)]} == {"K", "B"}


@pytest.mark.parametrize("arms", [["kernel", "base"], ["kernel", "torch"], ["kernel", "base", "torch"]])
def test_either_comes_first_as_often(arms: list[ArmName]) -> None:
    """A fair coin; the seed repeats its falls."""
    choice = random.Random(7)
    orders = [draw_order(arms, choice) for _ in range(1000)]
    first = Counter(order[0] for order in orders)
    assert len(first) == 2
    assert 430 < first["K"] < 570
    again = random.Random(7)
    assert orders == [draw_order(arms, again) for _ in range(1000)]


@given(k=st.tuples(times, times), b=st.tuples(times, times))
def test_the_log_ratio_is_that_of_geometric_means(k: tuple[float, float], b: tuple[float, float]) -> None:
    """½(ln k₁ + ln k₂ − ln b₁ − ln b₂), and its negative the other way round."""
    one = block("KBBK", k[0], b[0], b[1], k[1])
    expected = 0.5 * (math.log(k[0]) + math.log(k[1]) - math.log(b[0]) - math.log(b[1]))
    assert one.log_ratio("kernel", "base") == pytest.approx(expected, abs=1e-12)
    assert one.log_ratio("base", "kernel") == pytest.approx(-expected, abs=1e-12)


@given(
    arms=st.sampled_from([["kernel", "base"], ["kernel", "base", "torch"]]),
    seed=st.integers(0, 1000),
    drift=st.floats(-0.05, 0.05),
    slower=st.floats(0.5, 2.0),
)
def test_a_drift_cancels(arms: list[ArmName], seed: int, drift: float, slower: float) -> None:
    """A clock that falls steadily over the block leaves the ratio as it is, whatever the order."""
    order = draw_order(arms, random.Random(seed))
    own = {"K": slower, "B": 1.0, "T": 5.0}
    drifted = [1000 * own[letter] * math.exp(drift * place) for place, letter in enumerate(order)]
    assert block(order, *drifted).log_ratio("kernel", "base") == pytest.approx(math.log(slower), abs=1e-9)


def test_times_belong_to_arms() -> None:
    """Whatever place they had."""
    one = block("TKBBKT", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert one.times("kernel") == (2.0, 5.0)
    assert one.times("base") == (3.0, 4.0)
    assert one.times("torch") == (1.0, 6.0)
    assert one.times("compile") == ()
    assert one.log_ratio("kernel", "compile") is None
    assert one.log_ratio("compile", "kernel") is None


def test_every_arm_has_a_letter_and_back() -> None:
    """No two share one."""
    assert {LETTER_ARMS[letter] for letter in ARM_LETTERS.values()} == set(ARM_LETTERS)


@pytest.mark.parametrize(
    ("order", "ns", "words"),
    [
        ("KBKB", (1.0,) * 4, "'KBKB' is not the order of a block"),
        ("KBK", (1.0,) * 3, "reads the same from both ends"),
        ("", (), "'' is not the order"),
        ("KBBK", (1.0,) * 3, "3 times for a block KBBK"),
        ("KK", (1.0, 0.0), "finite and above 0"),
        ("KK", (1.0, -1.0), "finite and above 0"),
        ("KK", (1.0, math.inf), "finite and above 0"),
        ("KK", (1.0, math.nan), "finite and above 0"),
    ],
)
def test_what_is_no_block_is_refused(order: str, ns: tuple[float, ...], words: str) -> None:
    """In words."""
    with pytest.raises(ValueError, match=words):
        block(order, *ns)
