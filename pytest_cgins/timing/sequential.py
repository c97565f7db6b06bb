"""The sequential test that gates times: two bets on the signs of blocks, looked at after each.

A block gives d, the logarithm of the kernel's time over the other arm's. Under "not slower than δ₀" a block lies above
ln(1+δ₀) at most half of the time, whatever the noise looks like, if blocks are independent. With
s = 1 above the bound and −1 on it or below (a tie that counted as 0 would let blocks above outnumber those below),
each E = Π(1 + λ·s) with 0 < λ < 1 has an expectation of at most 1 at every stopping time, and so has the mean over
several λ. By Ville's inequality it ever reaches N/α with a chance of at most α/N; over N tests that is α in all.
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024; Ville, 1939.)

The mirrored bet, against "slower", has its bound halfway between ln(1+δ₀) and ln(1+δ₁): a kernel slower by just δ₁
must not be cleared, and on the bound itself, where blocks lie on either side by the spread between processes alone,
half of such kernels would be. "Clean" takes fewer blocks than "slower", so it does not end a test while the bet on
"slower" is ahead: else a kernel between both bounds would be cleared, however surely it is slower than δ₀, and one
slower by δ₁ whose process favours it by half the distance. `tests/benchmarks/sequential_simulation.py` shows what holds and what breaks it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Literal

from pytest_cgins.config import TimingGate
from pytest_cgins.core.measurement import Comparison, Power
from pytest_cgins.core.text import counted

LAMBDAS = (0.2, 0.4, 0.6, 0.8, 0.95)
"""Stakes of the bets that are averaged: small ones win where most signs are noise, great ones where none is."""
MOST_NEEDED = 10_000
"""Beyond so many blocks nobody is told how many it takes."""
POWER = 0.9
COVERAGE = 0.95
SPREADS = 2.5
LASTING = 0.01
"""Chance of so few changes of side below which blocks are not taken to be independent."""

Outcome = Literal["slower", "clean", "faster", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a test lets pass, what it must find, and how sure it is to be."""

    tolerate: float
    """δ₀: 0.02 is 2%."""
    catch: float
    """δ₁, above `tolerate`."""
    alpha: float
    """Chance of a false alarm, over all tests."""
    beta: float
    """Chance of clearing a kernel that is slower by `catch`."""
    tests: int
    """N: tests that share `alpha`."""
    most_blocks: int
    """After so many the test ends undecided."""

    def __post_init__(self) -> None:
        if not 0 <= self.tolerate < self.catch < math.inf:
            raise ValueError(
                f"catch is {self.catch}: it must be finite and above tolerate, {self.tolerate}, which is at least 0"
            )
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: a chance between 0 and 1 is needed")
        for name in ("tests", "most_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1 is needed")

    @classmethod
    def of_gate(cls, gate: TimingGate, tests: int) -> Rule:
        """What a kernel's settings ask for."""
        return cls(
            tolerate=gate.tolerate,
            catch=gate.catch,
            alpha=gate.alpha,
            beta=gate.beta,
            tests=tests,
            most_blocks=gate.max_blocks,
        )

    @property
    def slower_bound(self) -> float:
        """Log ratio above which a block counts for "slower"."""
        return math.log1p(self.tolerate)

    @property
    def clean_bound(self) -> float:
        """Log ratio below which a block counts for "clean"."""
        return (math.log1p(self.tolerate) + math.log1p(self.catch)) / 2

    @property
    def log_proof(self) -> float:
        """Ln E from which "slower", or "faster", is proven."""
        return math.log(self.tests / self.alpha)

    @property
    def log_clear(self) -> float:
        """Ln E from which "clean" is."""
        return -math.log(self.beta)

    def beside_spread(self, spread_upper: float) -> Rule:
        """The rule with δ₀ and δ₁ moved up by the spread between processes: a kernel on δ₀ is one in its own processes."""
        more = slack(spread_upper)
        return replace(self, tolerate=self.tolerate + more, catch=self.catch + more)


def slack(spread_upper: float) -> float:
    """What δ₀ and δ₁ are moved up by, by the upper bound of the spread between processes.

    Of kernels slower by just `tolerate` 0.6% lie beyond it in a process, even if the spread is as large as its bound, and
    1 in 26,000 in both: of 200 such kernels one is called slower in 0.8% of suites.
    """
    return SPREADS * spread_upper


def with_runs_test(comparison: Comparison, runs: float) -> Comparison:
    """A comparison that came out slower, with what a look at further blocks says of them: see `Comparison.runs`."""
    hangs = runs < LASTING and comparison.outcome == "slower"
    return replace(comparison, runs=runs, outcome="inconclusive" if hangs else comparison.outcome)


class SequentialTest:
    """Takes blocks one by one, and says when it has seen enough."""

    def __init__(self, rule: Rule, *, shift: float = 0.0, unit: Literal["block", "pair"] = "block") -> None:
        """`shift` is added to each log ratio, one a `unit`, before it is looked at.

        Raises:
            ValueError: it is not finite.
        """
        if not math.isfinite(shift):
            raise ValueError(f"a shift of log ratios is {shift}: a finite number is needed")
        self.rule = rule
        self.shift = shift
        self.unit = unit
        self._log_ratios: list[float] = []
        self._slower, self._clean, self._faster = (Bet() for _ in range(3))

    def add(self, log_ratio: float) -> None:
        """Take a block's log ratio.

        Raises:
            ValueError: it is not finite, or the test is done: what is proven stays so.
        """
        if not math.isfinite(log_ratio):
            raise ValueError(f"a block's log ratio is {log_ratio}: its times must be finite and above 0")
        if self.done:
            raise ValueError(
                f"the test ended after {counted(len(self._log_ratios), 'block')}: {self.outcome}"
            )
        shifted = log_ratio + self.shift
        self._log_ratios.append(log_ratio)
        self._slower.add(shifted - self.rule.slower_bound)
        self._clean.add(self.rule.clean_bound - shifted)
        self._faster.add(-shifted - self.rule.slower_bound)

    @property
    def outcome(self) -> Outcome:
        """What is proven by now."""
        if self._slower.log_e >= self.rule.log_proof:
            return "slower"
        if self._faster.log_e >= self.rule.log_proof:
            return "faster"
        return "clean" if self._clean.log_e >= self.rule.log_clear else "inconclusive"

    @property
    def done(self) -> bool:
        """Whether further blocks are of no use. One that is clean and may be slower than δ₀, or faster, goes on."""
        if len(self._log_ratios) >= self.rule.most_blocks or self.outcome in ("slower", "faster"):
            return True
        return self.outcome == "clean" and not self._ahead

    @property
    def _ahead(self) -> bool:
        return max(self._slower.log_e, self._faster.log_e) >= 0

    @property
    def fewest_left(self) -> int:
        """Blocks that it takes at least from here to whatever end is nearest; 0 if it is done."""
        if self.done:
            return 0
        left = self.rule.most_blocks - len(self._log_ratios)
        slower, faster, clean = (
            bet.wins_to(target, at_most=left)
            for bet, target in (
                (self._slower, self.rule.log_proof),
                (self._faster, self.rule.log_proof),
                (self._clean, self.rule.log_clear),
            )
        )
        return min(left, slower, faster, max(clean, int(self._ahead)))

    def comparison(self, against: Literal["base", "torch"]) -> Comparison:
        """All of it as data.

        Raises:
            ValueError: no block was added.
        """
        low, median, high = median_interval(self._log_ratios)
        return Comparison(
            against=against,
            unit=self.unit,
            log_ratios=tuple(self._log_ratios),
            shift=self.shift,
            **asdict(self.rule),
            log_e_slower=self._slower.log_e,
            log_e_clean=self._clean.log_e,
            log_e_faster=self._faster.log_e,
            outcome=self.outcome,
            ratio=math.exp(median),
            ratio_low=math.exp(low),
            ratio_high=math.exp(high),
            power=power(robust_sigma(self._log_ratios), self.rule),
        )


class Bet:
    """The e-value of a row of signs: it depends on how many were for and against, not on their order."""

    def __init__(self) -> None:
        self._won = self._lost = 0

    def add(self, margin: float) -> None:
        """A positive margin is won; any other is lost."""
        if margin > 0:
            self._won += 1
        else:
            self._lost += 1

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value."""
        return log_e(self._won, self._lost)

    def wins_to(self, target: float, *, at_most: int) -> int:
        """Wins in a row, `at_most` or fewer, after which `log_e` is `target` or more."""
        return next((n for n in range(at_most) if log_e(self._won + n, self._lost) >= target), at_most)


@lru_cache(maxsize=65536)
def log_e(won: int, lost: int) -> float:
    """Ln of the mean over λ of (1+λ)^won·(1−λ)^lost."""
    logs = [won * math.log1p(stake) + lost * math.log1p(-stake) for stake in LAMBDAS]
    most = max(logs)
    return most + math.log(sum(math.exp(log - most) for log in logs) / len(logs))


def robust_sigma(values: Sequence[float]) -> float:
    """Standard deviation of the bulk: 1.4826 times the median absolute deviation; single blocks lie far out."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def median_interval(values: Sequence[float], coverage: float = COVERAGE) -> tuple[float, float, float]:
    """Lower end, median and upper end: order statistics that hold the median with at least this chance.

    They hold it at every number of values at once, so it does not matter when or why the last one was taken: a confidence
    sequence. Each value lies below the true median as a fair coin falls. A bet on the coin's bias, uniform in [0, 1], has
    won 2ⁿ/((n+1)·C(n, k)) after k of n, which ever reaches 1/(1−coverage) with a chance of at most 1−coverage. Medians
    that would let it win so much are refused. Under eight values none is at 95%: the extremes are given.
    (Robbins, "Statistical methods related to the law of the iterated logarithm", 1970; Ville, 1939.)

    Raises:
        ValueError: without a value.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    ordered, n = sorted(values), len(values)
    # Ln C(n, k), at most, where k values below a median refuse it.
    log_most = n * math.log(2) - math.log(n + 1) + math.log1p(-coverage)
    rank = 0
    while rank + 1 <= (n - 1) // 2 and _log_choose(n, rank + 1) <= log_most:
        rank += 1
    return ordered[rank], statistics.median(ordered), ordered[n - 1 - rank]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# ---- what a test can see


def power(sigma: float, rule: Rule) -> Power:
    """What a test by this rule sees where a block's log ratio is normal with this standard deviation.

    Counted is what stands proven at the last block. A proof on the way ends the test too, so that a little more is
    found, or slightly fewer blocks would do; but some of what lies between both bounds is cleared first.
    """
    return Power(sigma=sigma, detectable=_detectable(sigma, rule), blocks_needed=_blocks_needed(sigma, rule))


def chance_of_proof(log_ratio: float, sigma: float, rule: Rule, blocks: int) -> float:
    """Chance that "slower" stands proven after just so many blocks, of a kernel whose true log ratio this is."""
    return _chance(_share(log_ratio - rule.slower_bound, sigma), blocks, rule.log_proof)


def chance_of_clearing(log_ratio: float, sigma: float, rule: Rule, blocks: int) -> float:
    """Chance that "clean" stands proven after just so many blocks."""
    return _chance(_share(rule.clean_bound - log_ratio, sigma), blocks, rule.log_clear)


def _share(margin: float, sigma: float) -> float:
    """Share of blocks that are won."""
    if sigma <= 0:
        return float(margin > 0)
    return statistics.NormalDist().cdf(margin / sigma)


def _chance(share: float, blocks: int, target: float) -> float:
    """Chance of a log e-value of `target` at the end of so many blocks, of which a share is won."""
    if log_e(blocks, 0) < target:
        return 0.0
    low, high = 0, blocks  # least number of wins that is enough
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if log_e(middle, blocks - middle) >= target else (middle + 1, high)
    return _binomial_tail(blocks, low, share)


def _binomial_tail(n: int, least: int, share: float) -> float:
    """P(X ≥ least) of a binomial."""
    if share <= 0 or share >= 1:
        return float(share >= 1 or least == 0)
    won, lost = math.log(share), math.log1p(-share)
    return min(
        1.0, math.fsum(math.exp(_log_choose(n, k) + k * won + (n - k) * lost) for k in range(least, n + 1))
    )


def _detectable(sigma: float, rule: Rule) -> float | None:
    share = _share_needed(rule.most_blocks, rule.log_proof)
    if share is None:
        return None
    log_ratio = rule.slower_bound + sigma * statistics.NormalDist().inv_cdf(share)
    return math.expm1(log_ratio) if log_ratio <= math.log(2) else None


@lru_cache
def _share_needed(blocks: int, target: float) -> float | None:
    """Share of blocks to be won for a log e-value of `target` with a chance of `POWER`; the same whatever the noise."""
    if _chance(1.0, blocks, target) < POWER:
        return None
    low, high = 0.5, 1 - 1e-9
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if _chance(middle, blocks, target) >= POWER else (middle, high)
    return high


def _blocks_needed(sigma: float, rule: Rule) -> int | None:
    def enough(blocks: int) -> bool:
        slower = chance_of_proof(math.log1p(rule.catch), sigma, rule, blocks)
        return min(slower, chance_of_clearing(0.0, sigma, rule, blocks)) >= POWER

    low, high = 0, 1
    while not enough(high):
        if high == MOST_NEEDED:
            return None
        low, high = high, min(2 * high, MOST_NEEDED)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
