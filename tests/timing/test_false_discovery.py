"""Lists with a bounded share of false alarms."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing.false_discovery import e_bh

logs = st.lists(st.floats(-50, 50), max_size=30)
levels = st.floats(0.001, 0.5)


def test_a_worked_example() -> None:
    """K = 4 at 10%: 40/k is needed of the k-th; 30 alone is too little, with 25 beside it both are enough."""
    assert e_bh([math.log(30), 0.0, math.log(19), 0.0], 0.1) == ()
    assert e_bh([math.log(30), 0.0, math.log(25), 0.0], 0.1) == (0, 2)
    assert e_bh([math.log(41), 0.0, math.log(19), 0.0], 0.1) == (0,)
    assert e_bh([math.log(30), 0.0, math.log(25), 0.0], 0.1, tests=6) == ()
    assert e_bh([], 0.1) == ()


@given(logs, levels)
def test_what_is_proven_alone_is_listed(log_es: list[float], alpha: float) -> None:
    """Whoever passes Bonferroni's threshold is in the list, and all in it have an e-value of 1/α at least."""
    listed = e_bh(log_es, alpha)
    assert {i for i, one in enumerate(log_es) if one >= math.log(len(log_es) / alpha) + 1e-9} <= set(listed)
    assert all(log_es[i] >= -math.log(alpha) - 1e-9 for i in listed)
    assert listed == tuple(sorted(set(listed)))


@given(logs, levels, levels)
def test_a_list_grows_with_alpha(log_es: list[float], one: float, other: float) -> None:
    """The stricter list is part of the other."""
    assert set(e_bh(log_es, min(one, other))) <= set(e_bh(log_es, max(one, other)))


@given(logs, levels, st.randoms())
def test_order_does_not_matter(log_es: list[float], alpha: float, shuffler: random.Random) -> None:
    """Shuffled, the same e-values are listed."""
    order = list(range(len(log_es)))
    shuffler.shuffle(order)
    listed = {order[i] for i in e_bh([log_es[i] for i in order], alpha)}
    assert sorted(log_es[i] for i in listed) == sorted(log_es[i] for i in e_bh(log_es, alpha))


def test_false_discoveries_stay_below_the_level() -> None:
    """90 true hypotheses with e-values of mean 1 and 10 false ones, 400 times: the mean share is below α."""
    draw = random.Random(3)
    alpha, shares = 0.2, []
    for _ in range(400):
        # exp(sZ − s²/2) has mean 1 and heavy tails: the hardest nulls.
        nulls = [2.0 * draw.gauss(0, 1) - 2.0 for _ in range(90)]
        listed = e_bh([*nulls, *(draw.gauss(8, 2) for _ in range(10))], alpha)
        shares.append(sum(i < 90 for i in listed) / max(1, len(listed)))
    assert sum(shares) / len(shares) < alpha
    assert max(shares) > 0


@pytest.mark.parametrize(
    ("values", "alpha", "tests"), [([0.0], 0.0, None), ([0.0, 0.0], 0.1, 1), ([math.nan], 0.1, 1)]
)
def test_nonsense_is_refused(values: list[float], alpha: float, tests: int | None) -> None:
    """A level of 0, fewer tests than e-values, and NaN raise."""
    with pytest.raises(ValueError, match="no e-BH"):
        e_bh(values, alpha, tests=tests)
