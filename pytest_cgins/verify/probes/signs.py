"""How far signs speak against chance: a test that may be looked at after every pair.

Where nothing but others' doings makes two members of a pair differ, and their order is random, either is the greater
one as often as the other. A gambler who bets a fixed share of his money on the first member at even odds then wins
nothing in the long run: that he ever has N times his money is no likelier than 1/N (Ville). Three gamblers bet
different shares, which suits few and many contrary pairs.
"""

from __future__ import annotations

SHARES = (0.25, 0.5, 0.9)


def evidence(wins: int, losses: int) -> float:
    """What the gamblers have, on average, of each unit that they began with; pairs without a difference do not count."""
    return sum((1 + share) ** wins * (1 - share) ** losses for share in SHARES) / len(SHARES)
