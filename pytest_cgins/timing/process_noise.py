"""How much a kernel's time differs from that of a second build of itself, within processes and between them.

Blocks of a process scatter about a level that is the process' own: where memory lies, and which code beside which,
differ from start to start and not within. `spread` is the standard deviation of these levels. It is what no number of
blocks removes, and so the least slowdown that means anything.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

CONFIDENCE = 0.95
"""Confidence of a spread's upper bound, and of the finding that a correlation is above zero."""
LEAST_PROCESSES = 3
LEAST_BLOCKS = 3
ALARMING = 0.05
"""Correlation from which the bound of false alarms over a suite is no longer known to hold. In simulation it held up
to this one, lay open at 0.08 and was broken from 0.1: `tests/benchmarks/results/sequential-simulation.md`."""

_Z = NormalDist().inv_cdf(CONFIDENCE)

Levels = Sequence[Sequence[float]]
"""Log ratios of the blocks of one case: a row a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNoise:
    """Noise of the log ratios of cases to themselves; about 0.01 is 1%."""

    spread: float
    """τ̂: standard deviation between processes of a case's level."""
    spread_upper: float
    """Upper bound of it at 95%, for normal levels. Slowdowns of 2.5 times this pass, beyond `tolerate`."""
    sigma: float
    """σ: standard deviation of a block within its process, 1.4826 times the median absolute deviation."""
    rho: float
    """ρ: correlation of a block with the next one, from that of signs about the process' median."""
    rho_error: float
    """Standard error of `rho` where blocks are independent."""
    offset: float
    """Greatest distance from 0 of a case's mean level: what its two builds differ by in every process."""

    @property
    def alarming(self) -> bool:
        """Whether blocks are correlated, by more than chance explains, so that tests may alarm too often."""
        return self.rho >= ALARMING and self.rho > _Z * self.rho_error


def estimate(cases: Sequence[Levels]) -> ProcessNoise:
    """Noise of cases that are alike, pooled: each on its own has too few processes.

    A process' level is estimated by the median of its n blocks, whose own variance is (π/2)σ²/n for normal blocks; that
    is taken from the variance of the medians. For blocks that are correlated it is more, and counts as spread.

    Raises:
        ValueError: no case, fewer than three processes or blocks, or a ratio that is not finite.
    """
    _require(cases)
    medians = [[statistics.median(blocks) for blocks in processes] for processes in cases]
    residuals = [
        block - level
        for processes, levels in zip(cases, medians, strict=True)
        for blocks, level in zip(processes, levels, strict=True)
        for block in blocks
    ]
    sigma = 1.4826 * statistics.median(map(abs, residuals))
    freedom = sum(len(levels) - 1 for levels in medians)
    between = sum(statistics.variance(levels) * (len(levels) - 1) for levels in medians) / freedom
    own = statistics.fmean(
        math.pi / 2 * sigma**2 / len(blocks) for processes in cases for blocks in processes
    )
    signs, pairs = _sign_correlation(cases, medians)
    return ProcessNoise(
        spread=math.sqrt(max(0.0, between - own)),
        spread_upper=math.sqrt(max(0.0, between * freedom / _chi_squared_low(freedom) - own)),
        sigma=sigma,
        rho=as_of_normal(signs),
        rho_error=math.pi / 2 / math.sqrt(pairs),
        offset=max(abs(statistics.fmean(levels)) for levels in medians),
    )


def as_of_normal(signs: float) -> float:
    """The correlation of normal values whose signs have this one: sin(πr/2) (Sheppard, 1899)."""
    return math.sin(math.pi / 2 * max(-1.0, min(1.0, signs)))


def _sign_correlation(cases: Sequence[Levels], medians: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Lag-1 correlation of the signs about the process' median, and of how many pairs.

    About their own median as many signs are plus as minus, whereby independent ones have a correlation of −1/(n−1).
    """
    total, pairs = 0.0, 0
    for processes, levels in zip(cases, medians, strict=True):
        for blocks, level in zip(processes, levels, strict=True):
            signs = [(block > level) - (block < level) for block in blocks]
            total += sum(one * following for one, following in pairwise(signs)) + 1
            pairs += len(blocks) - 1
    return total / pairs, pairs


def _chi_squared_low(freedom: int) -> float:
    """What chi squared is below with a chance of 5% (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * freedom)
    return float(freedom * max(1e-3, 1 - part - _Z * math.sqrt(part)) ** 3)


def _require(cases: Sequence[Levels]) -> None:
    if not cases:
        raise ValueError("noise is estimated from at least one case")
    for processes in cases:
        if len(processes) < LEAST_PROCESSES or min(map(len, processes)) < LEAST_BLOCKS:
            raise ValueError(
                f"noise is estimated from {LEAST_PROCESSES} processes of {LEAST_BLOCKS} blocks at least"
            )
        if not all(math.isfinite(block) for blocks in processes for block in blocks):
            raise ValueError("a block's log ratio is not finite")
