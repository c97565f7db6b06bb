"""Numbers made from samples: nothing here knows a clock or a device."""

from __future__ import annotations

import math
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


def block_log_ratios(numerator: Sequence[float], denominator: Sequence[float]) -> tuple[float, ...]:
    """One value a block: ½(ln n₁ + ln n₂ − ln d₁ − ln d₂).

    A block takes two samples of every arm in a palindromic order, so that a drift which is linear in time
    cancels. Samples 2j and 2j+1 are those of block j.

    Raises:
        ValueError: if the arms differ in length, hold half a block, or hold a sample that is not above 0.
    """
    if len(numerator) != len(denominator) or len(numerator) % 2:
        raise ValueError(
            f"blocks hold two samples of each arm: there are {len(numerator)} and {len(denominator)}"
        )
    if not all(0 < sample < math.inf for sample in (*numerator, *denominator)):
        raise ValueError("a time must be finite and above 0")
    logs = [math.log(n) - math.log(d) for n, d in zip(numerator, denominator, strict=True)]
    return tuple((logs[j] + logs[j + 1]) / 2 for j in range(0, len(logs), 2))


def speedup(times: Sequence[float], reference_times: Sequence[float]) -> Quartiles:
    """How many times faster `times` are than `reference_times`: exp of the block log ratios' quartiles."""
    logs = quartiles(block_log_ratios(reference_times, times))
    return Quartiles(math.exp(logs.low), math.exp(logs.median), math.exp(logs.high))


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
