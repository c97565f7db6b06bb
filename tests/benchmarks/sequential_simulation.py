"""What the sequential test of times holds to, and what breaks it: a synthetic suite drawn by lot.

    python tests/benchmarks/sequential_simulation.py [--seed N] [--scale SHARE] [--json PATH]
                                                     [--markdown PATH]

A block's log ratio is the kernel's true one, plus a bias of its process (standard deviation τ), plus noise (σ; of a
given shape; each block's hanging on the last one's by ρ). The rule is the one of the timing gate, its thresholds are
taken from `pytest_cgins.timing.sequential`, and a sample of rows is replayed through `SequentialTest` itself: any
difference ends the script with exit code 1. Bounds are tested the hard way: every kernel of the suite is slower by
just what is tolerated, and nothing but a false alarm or the last block ends a test. A bound is `held` if Clopper's
and Pearson's interval at 95% lies below it, `broken` if it lies above, and `open` otherwise.

Only numpy is needed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sequential_simulation_rivals import RIVALS, rivals
from sequential_simulation_text import markdown

from pytest_cgins.config import PROFILES
from pytest_cgins.timing.process_noise import _chi_squared_low
from pytest_cgins.timing.sequential import SPREADS, Rule, SequentialTest, log_e, median_interval, power

OUTCOMES = ("inconclusive", "clean", "slower", "faster")
SUITE = 200
CHUNK = 50_000
"""Rows that are held at once."""
SHAPES = ("normal", "t2", "skewed", "spikes", "spikes-above")
SIGMAS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
SLOWDOWNS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.10)
RHOS = (-0.2, 0.0, 0.02, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.6)
TAUS = (0.0, 0.0025, 0.005, 0.007, 0.01)
RULES = {
    name: Rule(
        tolerate=gate.tolerate,
        catch=gate.catch,
        alpha=gate.alpha,
        beta=gate.beta,
        tests=SUITE,
        most_blocks=gate.max_blocks,
    )
    for name, gate in PROFILES.items()
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=6, help="default: %(default)s")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the usual number of tests (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--markdown", type=Path, help="where to write the tables")
    arguments = parser.parse_args()
    started = time.process_time()
    simulation = Simulation(np.random.default_rng(arguments.seed), arguments.scale)
    replayed = simulation.replay()
    document = {
        "seed": arguments.seed,
        "scale": arguments.scale,
        "suite": SUITE,
        "rules": {name: rule_document(rule) for name, rule in RULES.items()},
        "replayed": replayed,
        "exact": exact(),
        "shapes": simulation.shapes(),
        "correlation": simulation.correlation(),
        "power": simulation.power(),
        "noises": simulation.noises(),
        "bias": simulation.bias(),
        "intervals": simulation.intervals(),
        "rivals": simulation.rivals(),
        "environment": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    }
    document["cpu_seconds"] = round(time.process_time() - started, 1)
    text = markdown(document)
    print(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n")
    return 1 if replayed["differences"] else 0


def rule_document(rule: Rule) -> dict[str, float]:
    return {name: getattr(rule, name) for name in Rule.__slots__}


# ---- the test, many at a time -------------------------------------------------------------------


@dataclass(frozen=True)
class Thresholds:
    """By the number of blocks, from 0 on."""

    proof: Any
    """Blocks to be won at least for "slower" or "faster"."""
    clear: Any
    """The same for "clean"."""
    ahead: Any
    """Blocks to be won at least for an e-value of 1."""

    @classmethod
    def of(cls, rule: Rule) -> Thresholds:
        return cls(*(least_won(rule.most_blocks, target) for target in (rule.log_proof, rule.log_clear, 0.0)))


def least_won(most: int, target: float) -> Any:
    """For 1 to `most` blocks; more than there are where no number is enough."""
    return np.array(
        [
            next((won for won in range(n + 1) if log_e(won, n - won) >= target), n + 1)
            for n in range(1, most + 1)
        ],
        dtype=np.int16,
    )


def won(signs: Any) -> Any:
    return np.cumsum(signs, axis=1, dtype=np.int16)


def decide(rule: Rule, ratios: Any, tolerate: Any = None) -> tuple[Any, Any]:
    """What each row ends with, as an index of OUTCOMES, and after how many blocks.

    `tolerate` is δ₀ a row, where it is not the rule's; `catch` keeps its distance.
    """
    limits = Thresholds.of(rule)
    tolerated = np.full(len(ratios), rule.tolerate) if tolerate is None else np.asarray(tolerate)
    low = np.log1p(tolerated)[:, None]
    middle = (low + np.log1p(tolerated + rule.catch - rule.tolerate)[:, None]) / 2
    wins_slower, wins_faster = won(ratios > low), won(ratios < -low)
    slower, faster = wins_slower >= limits.proof, wins_faster >= limits.proof
    clean = won(ratios < middle) >= limits.clear
    over = slower | faster | (clean & (wins_slower < limits.ahead) & (wins_faster < limits.ahead))
    over[:, -1] = True
    last = over.argmax(axis=1)
    rows = np.arange(len(ratios))
    codes = np.where(
        slower[rows, last], 2, np.where(faster[rows, last], 3, np.where(clean[rows, last], 1, 0))
    )
    return codes, last + 1


def noise(
    source: np.random.Generator, tests: int, blocks: int, shape: str = "normal", rho: float = 0.0
) -> Any:
    """Blocks with a median of 0, and a median absolute deviation as of a normal of σ = 1, but for spikes' own."""
    drawn = source.standard_normal((tests, blocks), dtype=np.float32)
    if rho:
        fresh = math.sqrt(1 - rho**2)
        for block in range(1, blocks):
            drawn[:, block] = rho * drawn[:, block - 1] + fresh * drawn[:, block]
    elif shape == "t2":
        tail = source.standard_exponential((tests, blocks), dtype=np.float32)
        drawn *= 0.6745 / 0.8165 / np.sqrt(np.maximum(tail, 1e-30))
    elif shape == "skewed":
        drawn = (source.standard_exponential((tests, blocks), dtype=np.float32) - math.log(2)) * (
            0.6745 / 0.4812
        )
    elif shape.startswith("spikes"):
        lot = source.random((tests, blocks), dtype=np.float32)
        if shape == "spikes":  # one block in twenty, on either side
            drawn += 16 * ((lot < 0.025).astype(np.float32) - (lot > 0.975))
        else:  # on one side: the rest moves down, so that the median stays
            drawn += 16 * (lot < 0.05).astype(np.float32) - 0.0660
    return drawn


def clopper_pearson(count: int, tests: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a share, by bisection on the binomial's tails."""

    def tail(share: float, step: int) -> float:
        term = total = math.exp(
            math.lgamma(tests + 1)
            - math.lgamma(count + 1)
            - math.lgamma(tests - count + 1)
            + count * math.log(share)
            + (tests - count) * math.log1p(-share)
        )
        at = count
        while 0 <= at + step <= tests and term > 1e-17 * total:
            odds = share / (1 - share)
            term *= (tests - at) / (at + 1) * odds if step > 0 else at / (tests - at + 1) / odds
            at, total = at + step, total + term
        return total

    def solve(step: int, low: float, high: float) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            too_far = tail(middle, step) > (1 - level) / 2
            if step > 0:
                low, high = (low, middle) if too_far else (middle, high)
            else:
                low, high = (middle, high) if too_far else (low, middle)
        return (low + high) / 2

    share, tiny = count / tests, 1e-15
    least = 0.0 if count == 0 else solve(1, tiny, max(share, 2 * tiny))
    most = 1.0 if count == tests else solve(-1, max(share, tiny), 1 - tiny)
    return least, most


def verdict(count: int, tests: int, bound: float) -> dict[str, Any]:
    """A share, its interval, and whether a bound of it was held."""
    low, high = clopper_pearson(count, tests)
    held = "held" if high <= bound else "broken" if low > bound else "open"
    return {
        "count": count,
        "of": tests,
        "share": count / tests,
        "interval_95": [low, high],
        "bound": bound,
        "verdict": held,
    }


def chance_ever(least: Any) -> float:
    """That a fair row of signs ever reaches the threshold, which is given by the number of blocks from 1 on."""
    chance, undecided = 0.0, np.array([1.0])
    for wins in least.tolist():
        undecided = (np.append(undecided, 0.0) + np.append(0.0, undecided)) / 2
        chance += float(undecided[wins:].sum())
        undecided[wins:] = 0.0
    return chance


def exact() -> list[dict[str, Any]]:
    """On the bound, with blocks that are independent: no lot is needed, and no noise matters."""
    rows = []
    for profile, base in RULES.items():
        for tests in (1, 20, SUITE, 2000):
            rule = replace(base, tests=tests)
            limits = Thresholds.of(rule)
            alarm = chance_ever(limits.proof)
            rows.append(
                {
                    "profile": profile,
                    "tests": tests,
                    "alarm_per_test": alarm,
                    "alarm_per_suite": -math.expm1(tests * math.log1p(-alarm)),
                    "alpha": rule.alpha,
                    "cleared_on_its_bound": chance_ever(limits.clear),
                    "beta": rule.beta,
                }
            )
    return rows


# ---- the simulated suite ------------------------------------------------------------------------


@dataclass
class Simulation:
    """Draws everything from one source."""

    source: np.random.Generator
    scale: float

    def chunks(self, tests: int) -> Iterator[int]:
        """Rows at a time, whole suites of every size, `tests` times the scale in all."""
        left = max(2000, round(tests * self.scale / 2000) * 2000)
        while left:
            yield min(left, CHUNK)
            left -= min(left, CHUNK)

    def replay(self) -> dict[str, int]:
        """Rows that `SequentialTest` decides too, block by block."""
        rows = differences = 0
        for rule in RULES.values():
            for ratio in (-0.05, -0.02, 0.0, 0.02, 0.03, 0.05, 0.08):
                ratios = math.log1p(ratio) + 0.02 * noise(self.source, 40, rule.most_blocks)
                ratios[::3] *= 0.25
                codes, blocks = decide(rule, ratios)
                for row, code, taken in zip(ratios.tolist(), codes, blocks, strict=True):
                    test, used = SequentialTest(rule), 0
                    while not test.done:
                        test.add(row[used])
                        used += 1
                    rows += 1
                    differences += (test.outcome, used) != (OUTCOMES[code], taken)
        return {"rows": rows, "differences": int(differences)}

    def false_alarms(
        self, rule: Rule, sizes: tuple[int, ...], tests: int, **kind: Any
    ) -> dict[int, dict[str, Any]]:
        """Suites of each size in which any test ever calls a kernel on the bound slower."""
        limits = {size: least_won(rule.most_blocks, replace(rule, tests=size).log_proof) for size in sizes}
        alarms, drawn = dict.fromkeys(sizes, 0), 0
        for rows in self.chunks(tests):
            drawn += rows
            wins = won(noise(self.source, rows, rule.most_blocks, **kind) > 0)
            for size, least in limits.items():
                alarms[size] += int((wins >= least).any(axis=1).reshape(-1, size).any(axis=1).sum())
        return {size: verdict(alarms[size], drawn // size, rule.alpha) for size in sizes}

    def shapes(self) -> list[dict[str, Any]]:
        """The bound, by shape of noise and size of the suite."""
        return [
            {"profile": profile, "shape": shape, "tests": size, **told}
            for profile, rule in RULES.items()
            for shape in SHAPES
            for size, told in self.false_alarms(
                rule, (1, 20, SUITE, 2000), 128_000_000 // rule.most_blocks, shape=shape
            ).items()
        ]

    def correlation(self) -> list[dict[str, Any]]:
        """The bound by ρ; and the whole procedure on kernels that did not change."""
        found = []
        for profile, rule in RULES.items():
            for rho in RHOS:
                told = self.false_alarms(rule, (1, SUITE), 128_000_000 // rule.most_blocks, rho=rho)
                row: dict[str, Any] = {
                    "profile": profile,
                    "rho": rho,
                    "on_the_bound": {str(k): v for k, v in told.items()},
                }
                for sigma in (0.01, 0.04):
                    shares = self.ends(rule, 0.0, sigma, 3_200_000 // rule.most_blocks, rho=rho)
                    row[f"unchanged_sigma_{sigma:g}"] = shares
                found.append(row)
        return found

    def ends(self, rule: Rule, slowdown: float, sigma: float, tests: int, **kind: Any) -> dict[str, Any]:
        """Shares of outcomes and the blocks they took."""
        counts, blocks = np.zeros(4, dtype=int), []
        for rows in self.chunks(tests):
            ratios = math.log1p(slowdown) + sigma * noise(self.source, rows, rule.most_blocks, **kind)
            codes, taken = decide(rule, ratios)
            counts += np.bincount(codes, minlength=4)
            blocks.append(taken)
        taken = np.concatenate(blocks)
        return {
            "tests": len(taken),
            **{name: int(count) / len(taken) for name, count in zip(OUTCOMES, counts, strict=True)},
            "mean_blocks": float(taken.mean()),
            "median_blocks": float(np.median(taken)),
        }

    def power(self) -> list[dict[str, Any]]:
        """Power curves: by σ and true slowdown."""
        found = []
        for profile, rule in RULES.items():
            for sigma in SIGMAS:
                told = power(sigma, rule)
                curve = [
                    {"slowdown": slowdown, **self.ends(rule, slowdown, sigma, 640_000 // rule.most_blocks)}
                    for slowdown in (-0.05, *SLOWDOWNS)
                ]
                found.append(
                    {
                        "profile": profile,
                        "sigma": sigma,
                        "detectable_as_told": told.detectable,
                        "blocks_needed_as_told": told.blocks_needed,
                        "curve": curve,
                    }
                )
        return found

    def noises(self) -> list[dict[str, Any]]:
        """The default rule on shapes of noise and ρ: what they cost."""
        rule = RULES["default"]
        kinds = [{"shape": shape} for shape in SHAPES] + [{"rho": rho} for rho in (0.1, 0.3)]
        return [
            {**kind, "sigma": 0.01, "slowdown": slowdown, **self.ends(rule, slowdown, 0.01, 20_000, **kind)}
            for kind in kinds
            for slowdown in (0.0, 0.05)
        ]

    def bias(self) -> list[dict[str, Any]]:
        """Bias between processes, and what a fresh process and a calibrated δ₀ do about it."""
        return [
            self.biased(sigma, tau, tolerance)
            for sigma in (0.0002, 0.01)
            for tau in TAUS
            for tolerance in ("fixed", "known", "estimated")
            if tau or tolerance == "fixed"
        ]

    def biased(self, sigma: float, tau: float, tolerance: str) -> dict[str, Any]:
        rule = RULES["default"]
        row: dict[str, Any] = {"sigma": sigma, "tau": tau, "tolerance": tolerance}
        for slowdown, tests in ((0.0, 300_000), (0.05, 20_000), (0.08, 6_000)):
            counts, confirmed, suites, doubly, drawn = np.zeros(4, dtype=int), 0, 0, 0, 0
            for rows in self.chunks(tests):
                spread = np.full(rows // SUITE, tau)
                if tolerance == "estimated":
                    spread = tau * np.sqrt(self.source.chisquare(9, rows // SUITE) / _chi_squared_low(9))
                more = 0.0 if tolerance == "fixed" else SPREADS
                tolerated = np.repeat(rule.tolerate + more * spread, SUITE)
                codes = self.one_process(rule, slowdown, sigma, tau, tolerated)
                again = np.flatnonzero(codes == 2)
                second = np.zeros(rows, dtype=bool)
                if len(again):
                    second[again] = (
                        self.one_process(replace(rule, tests=1), slowdown, sigma, tau, tolerated[again]) == 2
                    )
                counts += np.bincount(codes, minlength=4)
                confirmed += int(second.sum())
                suites += int((codes == 2).reshape(-1, SUITE).any(axis=1).sum())
                doubly += int(second.reshape(-1, SUITE).any(axis=1).sum())
                drawn += rows
            row[f"slowdown_{slowdown:g}"] = {
                "tests": drawn,
                **{name: int(count) / drawn for name, count in zip(OUTCOMES, counts, strict=True)},
                "slower_confirmed": confirmed / drawn,
                "suites_slower": verdict(suites, drawn // SUITE, rule.alpha),
                "suites_slower_confirmed": verdict(doubly, drawn // SUITE, rule.alpha),
            }
        return row

    def one_process(self, rule: Rule, slowdown: float, sigma: float, tau: float, tolerated: Any) -> Any:
        """Each row in a process of its own."""
        bias = tau * self.source.standard_normal((len(tolerated), 1))
        ratios = math.log1p(slowdown) + bias + sigma * noise(self.source, len(tolerated), rule.most_blocks)
        return decide(rule, ratios, tolerated)[0]

    def intervals(self) -> list[dict[str, Any]]:
        """How often the interval of the ratio holds the true one, where the number of blocks was not fixed."""
        rule, found = RULES["default"], []
        for sigma, slowdown in ((0.01, 0.0), (0.04, 0.0), (0.01, 0.05), (0.04, 0.05)):
            tests = max(500, round(5000 * self.scale))
            true = math.log1p(slowdown)
            ratios = true + sigma * noise(self.source, tests, rule.most_blocks)
            blocks = decide(rule, ratios)[1]
            held = {"at_the_end": 0, "after_all_blocks": 0}
            for row, taken in zip(ratios.tolist(), blocks, strict=True):
                for name, values in (("at_the_end", row[:taken]), ("after_all_blocks", row)):
                    low, _, high = median_interval(values)
                    held[name] += low <= true <= high
            found.append(
                {"sigma": sigma, "slowdown": slowdown, "tests": tests}
                | {name: count / tests for name, count in held.items()}
            )
        return found

    def rivals(self) -> list[dict[str, Any]]:
        """Other rules on the same samples."""
        rule, found = RULES["default"], []
        tests = max(500, round(4000 * self.scale))
        for shape, sigma in (("normal", 0.01), ("spikes", 0.01), ("normal", 0.04)):
            for slowdown in (0.0, 0.03, 0.05, 0.10):
                kernel, base = (
                    sigma * noise(self.source, tests, 2 * rule.most_blocks, shape).astype(float)
                    for _ in range(2)
                )
                kernel += math.log1p(slowdown)
                ratios = (kernel - base).reshape(tests, -1, 2).mean(axis=2)
                codes, taken = decide(rule, ratios)
                alarms = {"sequential test": (codes == 2, taken)}
                alarms |= rivals(kernel, base, ratios, rule, self.source)
                found.append(
                    {
                        "shape": shape,
                        "sigma": sigma,
                        "slowdown": slowdown,
                        "tests": tests,
                        "rules": {
                            name: {"alarms": float(alarm.mean()), "mean_blocks": float(np.mean(blocks))}
                            for name, (alarm, blocks) in alarms.items()
                        },
                    }
                )
        assert set(found[0]["rules"]) == {"sequential test", *RIVALS}
        return found


if __name__ == "__main__":
    sys.exit(main())
