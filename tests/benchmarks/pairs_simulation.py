"""In how many pairs of processes a slowdown is found or a kernel cleared, by formula and by lot.

    python tests/benchmarks/pairs_simulation.py [--runs N] [--seed N] [--json PATH]

A process gives the median of m batches (`environment_pairs.BATCHES`), each with noise σ, and has a bias of its own, τ.
The log ratio of a pair has the variance s² = 2τ² + πσ²/m, so a pair of a kernel slower by Δ counts for "slower" with a
chance of Φ((ln(1+Δ) − ln(1+δ₀))/s). The pairs are drawn batch by batch and judged by `SequentialTest`; formula and lot
differ by what a median of 16 is not normal. The bound is computed, not drawn: at Δ = δ₀ with P(win) = ½ all ways to win
and lose are followed, and the chance that E ever reaches N/α is added up.
Only numpy is needed.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

import numpy as np

from pytest_cgins.gate.environment_pairs import BATCHES
from pytest_cgins.timing.sequential import Rule, SequentialTest, log_e

SUITE = 200
RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=SUITE, most_blocks=48)
SIGMA = 0.003
TAUS = (0.0005, 0.0025, 0.005, 0.0074, 0.01)
SLOWDOWNS = (0.0, 0.02, 0.03, 0.04, 0.05, 0.08)
WORLDS = ("normal", "heavy tails", "drift", "unequal spreads")


def noise(world: str, rng: np.random.Generator, shape: tuple[int, ...], tau: float) -> np.ndarray:
    """Log ratios without the slowdown: kernel's process minus base's, medians over batches."""
    runs, pairs = shape
    heavy = world == "heavy tails"
    own = [1.0, 3.0] if world == "unequal spreads" else [1.0, 1.0]
    sides = []
    for factor in own:
        bias = rng.standard_t(3, shape) * tau / math.sqrt(3) if heavy else rng.normal(0, tau, shape)
        batches = rng.standard_t(2, (*shape, BATCHES)) if heavy else rng.normal(0, 1, (*shape, BATCHES))
        sides.append(factor * bias + np.median(factor * SIGMA * batches, axis=2))
    difference = sides[0] - sides[1]
    if world == "drift":  # 0.2% from the first process of a pair to the second, whichever that is
        difference += 0.002 * rng.choice([-1.0, 1.0], (runs, pairs))
    return difference


def drawn(world: str, tau: float, slowdown: float, runs: int, rng: np.random.Generator) -> dict[str, Any]:
    """What `SequentialTest` says of so many kernels."""
    ratios = math.log1p(slowdown) + noise(world, rng, (runs, RULE.most_blocks), tau)
    outcomes, taken = [], []
    for row in ratios:
        test = SequentialTest(RULE, unit="pair")
        for ratio in row:
            test.add(float(ratio))
            if test.done:
                break
        comparison = test.comparison("base")
        outcomes.append(comparison.outcome)
        taken.append(len(comparison.log_ratios))
    spread = math.sqrt(2 * tau**2 + math.pi * SIGMA**2 / BATCHES)
    shift = (math.log1p(slowdown) - RULE.slower_bound) / spread
    return {
        "world": world, "tau": tau, "slowdown": slowdown, "runs": runs,
        "win_share_formula": NormalDist().cdf(shift),
        "win_share_drawn": float((ratios > RULE.slower_bound).mean()),
        "pairs_median": median(taken), "pairs_p90": float(np.quantile(taken, 0.9)),
        **{name: outcomes.count(name) / runs for name in ("slower", "clean", "faster", "inconclusive")},
    }  # fmt: skip


def chance_of_false_alarm(rule: Rule) -> float:
    """Chance that E ever reaches N/α within the pairs that there may be, where each is won with a chance of ½."""
    alive = {0: 1.0}  # wins → chance, of those that have proven nothing
    proven = 0.0
    for pair in range(1, rule.most_blocks + 1):
        following: dict[int, float] = {}
        for wins, chance in alive.items():
            for more in (0, 1):
                following[wins + more] = following.get(wins + more, 0.0) + chance / 2
        for wins in list(following):
            if log_e(wins, pair - wins) >= rule.log_proof:
                proven += following.pop(wins)
        alive = following
    return proven


def fewest_pairs(rule: Rule) -> int:
    """Pairs after which "slower" is proven at the soonest."""
    return next(pairs for pairs in range(1, 1000) if log_e(pairs, 0) >= rule.log_proof)


def rows(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """All worlds."""
    rng = np.random.default_rng(seed)
    for world in WORLDS:
        for tau in TAUS:
            for slowdown in SLOWDOWNS:
                yield drawn(world, tau, slowdown, runs, rng)


def main() -> int:
    """Print the table; exit code 1 if the bound is broken."""
    parser = argparse.ArgumentParser(description="Pairs of processes by formula and by lot.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chance, bound = chance_of_false_alarm(RULE), RULE.alpha / RULE.tests
    print(
        f"N = {SUITE}: slower needs at least {fewest_pairs(RULE)} pairs; sigma = {SIGMA:.1%}, m = {BATCHES}"
    )
    print(f"false alarm at delta0: {chance:.2e} a kernel (computed), bound {bound:.2e}")
    print(
        "world            tau    slow-down  P(win) formula/drawn  pairs median/p90  slower  clean  undecided"
    )
    table = list(rows(arguments.runs, arguments.seed))
    for row in table:
        print(
            f"{row['world']:<16} {row['tau']:.2%}  {row['slowdown']:>6.0%}     "
            f"{row['win_share_formula']:.3f} / {row['win_share_drawn']:.3f}        "
            f"{row['pairs_median']:>4.0f} / {row['pairs_p90']:>3.0f}      "
            f"{row['slower']:>6.3f}  {row['clean']:>6.3f}  {row['inconclusive']:>6.3f}"
        )
    if arguments.json:
        about = {"python": platform.python_version(), "numpy": np.__version__, "seed": arguments.seed}
        told = {
            "environment": about,
            "false_alarm": chance,
            "bound": bound,
            "fewest_pairs": fewest_pairs(RULE),
        }
        arguments.json.write_text(json.dumps({**told, "rows": table}, indent=1) + "\n")
    return int(chance > bound)


if __name__ == "__main__":
    sys.exit(main())
