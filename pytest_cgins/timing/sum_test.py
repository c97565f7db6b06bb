"""The second test of a time: on sums of calls, which hold the costs that come rarely and that medians hide.

A superblock is as many blocks in a row as it takes for each arm to have 32 calls. It gives the logarithm of the kernel's
sum of times over the other arm's, and the sign of that against ln(1+δ₀) is bet on as `sequential` bets on blocks: no test
of means holds for every noise, one of medians does, and the median of sums of 32 calls has what comes once in 32 calls.
There is one superblock always, and a further one only while the first ones speak for a difference. The test counts in N
as any other. What comes less often than once in a superblock's calls is not seen.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from pytest_cgins.core.measurement import Comparison, SumOutcome, Sums
from pytest_cgins.core.text import counted
from pytest_cgins.timing.sequential import Bet, Outcome, Rule, log_e

LEAST_CALLS = 32
"""Fewest calls of each arm in a superblock."""
GIVE_UP = math.log(0.25)
"""Ln of the e-value below which nothing more is taken: what one superblock said, three others denied."""


class SumTest:
    """Takes superblocks one by one."""

    def __init__(self, rule: Rule, *, calls: int, shift: float = 0.0) -> None:
        """Nothing is taken yet; the rule's blocks are superblocks here.

        `calls` are of the arm that has fewer, in a superblock; `shift` is added to each log ratio before it is looked at.
        """
        self.rule = rule
        self._calls = calls
        self._shift = shift
        self._log_ratios: list[float] = []
        self._slower, self._faster = Bet(), Bet()

    def add(self, log_ratio: float) -> None:
        """Take a superblock's log ratio of sums.

        Raises:
            ValueError: it is not finite, or there is nothing more to take.
        """
        if not math.isfinite(log_ratio):
            raise ValueError(f"a log ratio of sums is {log_ratio}: its times must be finite and above 0")
        if not self.open:
            raise ValueError(
                f"the test of sums ended after {counted(len(self._log_ratios), 'superblock')}: {self.outcome}"
            )
        self._log_ratios.append(log_ratio)
        self._slower.add(log_ratio + self._shift - self.rule.slower_bound)
        self._faster.add(-log_ratio - self._shift - self.rule.slower_bound)

    @property
    def outcome(self) -> SumOutcome:
        """What is proven, or what the first superblock let suspect and the others did not deny."""
        if self._slower.log_e >= self.rule.log_proof:
            return "slower"
        if self._faster.log_e >= self.rule.log_proof:
            return "faster"
        first = self._log_ratios[0] + self._shift if self._log_ratios else 0.0
        if first > self.rule.clean_bound and self._slower.log_e >= GIVE_UP:
            return "maybe-slower"
        if first < -self.rule.clean_bound and self._faster.log_e >= GIVE_UP:
            return "maybe-faster"
        return "alike"

    @property
    def open(self) -> bool:
        """Whether a further superblock could say more."""
        taken = len(self._log_ratios)
        return not taken or (self.outcome.startswith("maybe") and taken < self.rule.most_blocks)

    def wanted(self, median: Outcome) -> bool:
        """Whether it could change what the medians prove: slow sums do of any kernel, fast ones of a slower one."""
        return self.open and self.outcome != ("maybe-slower" if median == "slower" else "maybe-faster")

    def sums(self) -> Sums:
        """All of it as data.

        Raises:
            ValueError: no superblock was added.
        """
        return Sums(
            calls=self._calls,
            most=self.rule.most_blocks,
            log_ratios=tuple(self._log_ratios),
            ratio=math.exp(statistics.median(self._log_ratios)),
            log_e_slower=self._slower.log_e,
            log_e_faster=self._faster.log_e,
            outcome=self.outcome,
        )


def can_prove(rule: Rule) -> bool:
    """Whether a row of superblocks that all point one way is long enough for a proof."""
    return log_e(rule.most_blocks, 0) >= rule.log_proof


def with_sums(comparison: Comparison, sums: Sums) -> Comparison:
    """A comparison of medians, with what both tests prove together: whoever runs a kernel often pays its sum."""
    return replace(comparison, sums=sums, outcome=_together(comparison.outcome, sums.outcome))


def _together(median: Outcome, sums: SumOutcome) -> Outcome:
    if sums == "slower" or (sums == "faster" and median == "slower"):
        return sums
    return "inconclusive" if sums == "maybe-slower" and median != "slower" else median
