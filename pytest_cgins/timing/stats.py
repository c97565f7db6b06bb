"""Numbers made from samples: nothing here knows a clock or a device."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The three cuts of a sample into quarters, in the sample's unit."""

    low: float
    """First quartile."""
    median: float
    """Second quartile."""
    high: float
    """Third quartile."""

    @property
    def range(self) -> float:
        """Interquartile range."""
        return self.high - self.low


def quartiles(samples: Sequence[float]) -> Quartiles:
    """Quartiles with linear interpolation between order statistics (Hyndman and Fan's type 7).

    Raises:
        ValueError: without a sample.
    """
    if not samples:
        raise ValueError("quartiles need at least one sample")
    if len(samples) == 1:
        return Quartiles(samples[0], samples[0], samples[0])
    return Quartiles(*statistics.quantiles(samples, n=4, method="inclusive"))


def chance_of_so_few_runs(signs: Sequence[bool]) -> float:
    """The chance that independent signs, as many of each, change sides as seldom as these do (Wald and Wolfowitz, 1940)."""
    n, m = sum(signs), len(signs) - sum(signs)
    if not n or not m:
        return 1.0
    runs = 1 + sum(one != following for one, following in pairwise(signs))
    ways = 0
    for count in range(2, runs + 1):
        more, fewer = (count + 1) // 2, count // 2
        # Either side may be the one that begins, and has the odd run.
        ways += comb(n - 1, more - 1) * comb(m - 1, fewer - 1) + comb(n - 1, fewer - 1) * comb(
            m - 1, more - 1
        )
    return ways / comb(n + m, n)
