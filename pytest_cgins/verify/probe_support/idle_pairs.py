"""Whether calls move a count that other processes move, too: each is compared with an idle spell as long as it.

What others do raises the count in a call as often as in the spell, whatever its size, for which of the two comes first
is left to chance; a leak raises it in calls alone. So signs are all that counts, and calls must be ahead so often
that it happens by chance once in a million suspicions. That takes 24 pairs on a quiet GPU, and hundreds where others allocate
or free in every third spell; where they do so in most, calls are never far enough ahead, and nothing is said.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

MOST_PAIRS = 512
LEAST_PAIRS = 64
"""Before it is given up that calls are ahead."""
LEAST_LEAD = 0.1
"""Least lead of calls over idle spells, as a share of all pairs, to take more pairs."""
BUDGET_S = 2.0
CERTAIN = 1e6
_SPIN_S = 0.001
SHARES = (0.25, 0.5, 0.9)
"""Shares of their money that gamblers bet on one sign: a small share suits many contrary pairs, a large one few."""

Pair = Sequence[int]
"""Bytes that the count rose by during a call, and during an idle spell."""


def observe(
    call: Callable[[], None], taken: Callable[[], int], ended: Callable[[], bool]
) -> list[tuple[int, int]]:
    """Pairs of a call and an idle spell, until it is certain that calls take memory, or unlikely."""
    order = random.Random(0)  # noqa: S311
    pairs: list[tuple[int, int]] = []
    end = time.monotonic() + BUDGET_S
    _, lasting_s = _step(call, taken)
    while len(pairs) < MOST_PAIRS and not ended() and time.monotonic() < end and not _is_settled(pairs):
        idle_first = order.random() < 0.5
        of_idle = _step(lambda: _wait(lasting_s), taken)[0] if idle_first else 0  # noqa: B023
        of_call, lasting_s = _step(call, taken)
        if not idle_first:
            of_idle = _step(lambda: _wait(lasting_s), taken)[0]  # noqa: B023
        pairs.append((of_call, of_idle))
    return pairs


def _step(act: Callable[[], None], taken: Callable[[], int]) -> tuple[int, float]:
    """The rise of the count, and the time it took."""
    before = taken()
    start = time.monotonic()
    act()
    lasting_s = time.monotonic() - start
    return taken() - before, lasting_s


def _wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    time.sleep(max(0.0, seconds - _SPIN_S))
    while time.monotonic() < end:
        pass


def _signs(pairs: Sequence[Pair]) -> tuple[int, int]:
    """The number of pairs in which the call rose more than the idle spell, and the number in which it rose less."""
    return sum(call > idle for call, idle in pairs), sum(call < idle for call, idle in pairs)


def _is_settled(pairs: Sequence[Pair]) -> bool:
    ahead, behind = _signs(pairs)
    return is_growth(pairs) or (len(pairs) >= LEAST_PAIRS and ahead - behind < LEAST_LEAD * len(pairs))


def is_growth(pairs: Sequence[Pair]) -> bool:
    """Whether it is certain that calls take memory which they do not give back."""
    # What a call took and the spell after it gave back was not leaked.
    return evidence(*_signs(pairs)) >= CERTAIN and statistics.median(idle for _, idle in pairs) >= 0


def evidence(wins: int, losses: int) -> float:
    """How far signs speak against chance: a test that may be looked at after every pair.

    Where nothing but others' doings makes two members of a pair differ, and their order is random, either is the
    greater one as often as the other. A gambler who bets a fixed share of his money on the first member at even odds
    then wins nothing in the long run: that he ever has N times his money is no likelier than 1/N (Ville).

    Returns:
        What three such gamblers have, on average, of each unit that they began with; pairs without a difference do not count.
    """
    return sum((1 + share) ** wins * (1 - share) ** losses for share in SHARES) / len(SHARES)
