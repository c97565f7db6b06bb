"""What the gate's claim on time rests on, before and after: `BlockSampler` itself on drawn blocks.

    python tests/benchmarks/time_claims.py [--seed N] [--scale SHARE] [--json PATH] [--markdown PATH]

- **clock**: kernels on the bound whose order alone decides a block's side, and that move the clock; a retaken block gets
  a new order (`before`) or keeps its own.
- **rare**: costs that come rarely, judged by medians alone (`before`) or by sums too; and kernels that did not change.
- **spread**: suites of 200 kernels that are slower by up to what is tolerated, each process with a level of its own.
- **states**: a kernel that is slow for many blocks and then fast, before and after the look at further blocks.
- **interval**: how often the printed interval, at the block where the test ended, misses the true ratio.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_cgins.core.measurement import ArmName
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import BlockSampler, Prepared, Take
from pytest_cgins.timing.process_noise import estimate
from pytest_cgins.timing.sequential import Rule, SequentialTest, median_interval

RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=400, most_blocks=64)
ARMS: tuple[ArmName, ...] = ("kernel", "base", "torch")
LONG, SHORT = 300e-6, 300e-6 / 20
SUITE = 200
Ratios = Iterator[float]
Call = Callable[[int, random.Random], float]


def ready(call_s: float) -> Prepared:
    calls = max(1, round(300e-6 / call_s))
    return Prepared(
        arms=ARMS, method="cuda-graph", calls=dict.fromkeys(ARMS, calls), batch_seconds=dict.fromkeys(ARMS, calls * call_s),
        host_ns_per_call={}, cold=True,
    )  # fmt: skip


class RedrawnBlocks(BlockSampler):
    """As it had been: a block that is taken again gets a new order, and those beside it count at once."""

    def _settled(self, orders: Sequence[str], take: Take) -> list[Block]:
        kept: list[Block] = []
        blocks = take(orders)
        for block, why in zip(blocks, self._judged(blocks, self._blocks), strict=True):
            if why:
                self._redone.append(why)
            else:
                kept.append(block)
        return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    runs = max(10, round(1000 * arguments.scale))
    draw = random.Random(arguments.seed)
    tables = {
        "clock": clock(draw, 10 * runs),
        "rare": rare(draw, max(5, runs // 25)),
        "spread": spread(draw, max(20, runs // 5)),
        "states": lasting(draw, runs),
        "interval": interval(draw, runs),
    }
    text = "\n\n".join(f"## {name}\n\n{table(rows)}" for name, rows in tables.items())
    print(text)
    document = {"seed": arguments.seed, "runs": runs, **tables}
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(f"# Claims on time, simulated\n\n{text}\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        list(rows[0]),
        ["---"] * len(rows[0]),
        *([cell(value) for value in row.values()] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- the clock


def clock(draw: random.Random, runs: int) -> list[dict[str, Any]]:
    def block(order: str, shift: float) -> Block:
        side = 1.0201 if order[0] == "K" else 1.0199
        mhz = round(1980 * (1 - shift)) if order[-1] == "K" else 1980
        times = tuple(1000 * side if letter == "K" else 1000.0 for letter in order)
        return Block(order=order, ns_per_call=times, sm_mhz=mhz)

    rows = []
    for tests in (1, 400):
        for shift in (0.0, 0.03):
            row: dict[str, Any] = {"N": tests, "clock moved by": shift, "runs": runs}
            for name, kind in (("before", RedrawnBlocks), ("after", BlockSampler)):
                alarms = 0
                for _ in range(runs):
                    rule = replace(RULE, tests=tests, beta=1e-9)
                    sampler = kind(ready(SHORT), seed=draw.getrandbits(40), base=rule)
                    sampler.run(lambda orders, shift=shift: [block(order, shift) for order in orders])  # type: ignore[misc]
                    alarms += sampler.comparisons()[0].outcome == "slower"
                row[f"false alarms {name}"] = alarms / runs
            rows.append(row)
    return rows


# ---- costs that come rarely


def plain(_: int, draw: random.Random) -> float:
    return math.exp(draw.gauss(0, 0.01))


def every(period: int, factor: float) -> Call:
    return lambda n, draw: plain(n, draw) * (factor if n % period == period - 1 else 1.0)


def hiccups(_: int, draw: random.Random) -> float:
    return plain(0, draw) * (40.0 if draw.random() < 0.003 else 1.0)


def scaled(factor: float, call: Call = plain) -> Call:
    return lambda n, draw: factor * call(n, draw)


RARE: dict[str, tuple[Call, Call, float]] = {
    "unchanged, 300 us": (plain, plain, LONG),
    "unchanged, 15 us": (plain, plain, SHORT),
    "unchanged, machine with hiccups": (hiccups, hiccups, LONG),
    "31st call 41 times as long": (every(31, 41), plain, LONG),
    "500th call 67 times the 300 us": (every(500, 67 * 20), plain, SHORT / 20),
    "that cost gone, median +4%": (scaled(1.04), every(31, 41), LONG),
    "5% slower": (scaled(1.05), plain, LONG),
    "5% slower, 15 us": (scaled(1.05), plain, SHORT),
    "5000th call 1000 times": (every(5000, 1000), plain, LONG),
}


def rare(draw: random.Random, runs: int) -> list[dict[str, Any]]:
    rows = []
    for name, (kernel, base, call_s) in RARE.items():
        row: dict[str, Any] = {"kernel": name, "runs": runs}
        for sums in (False, True):
            outcomes: Counter[str] = Counter()
            blocks, superblocks = [], []
            for _ in range(runs):
                rule = replace(RULE, tests=400 if sums else 200)
                prepared = ready(call_s)
                sampler = BlockSampler(prepared, seed=draw.getrandbits(40), base=rule, sums=sums)
                sampler.run(device(draw, kernel, base, prepared.calls["kernel"]))
                (found,) = sampler.comparisons()
                outcomes[found.outcome] += 1
                blocks.append(len(sampler.measurement().orders.split()))
                superblocks.append(len(found.sums.log_ratios) if found.sums else 0)
            label = "after" if sums else "before"
            row[label] = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
            row[f"blocks {label}"] = statistics.median(blocks)
        row["sums"] = statistics.median(superblocks)
        rows.append(row)
    return rows


def device(draw: random.Random, kernel: Call, base: Call, calls: int) -> Take:
    """Batches of five loops, of which the middle one counts, where there are calls enough."""
    at: Counter[str] = Counter({"K": draw.randrange(10_000), "B": draw.randrange(10_000)})
    loops = min(5, calls)

    def batch(letter: str) -> list[float]:
        call = kernel if letter == "K" else base
        times = [call(n, draw) for n in range(at[letter], at[letter] + calls)]
        at[letter] += calls
        size = -(-calls // loops)
        return [statistics.fmean(times[start : start + size]) for start in range(0, calls, size)]

    def take(orders: Sequence[str]) -> list[Block]:
        blocks = []
        for order in orders:
            batches = [batch(letter) for letter in order]
            medians, means = (tuple(map(middle, batches)) for middle in (statistics.median, statistics.fmean))
            blocks.append(Block(order=order, ns_per_call=medians, mean_ns_per_call=means))
        return blocks

    return take


# ---- processes that differ


def spread(draw: random.Random, suites: int) -> list[dict[str, Any]]:
    """Levels alone decide: blocks are taken to be without noise. Calibrations have 2 cases in 10 processes."""
    rows = []
    for tau in (0.0034, 0.007):
        for slowdown in (0.0, 0.018, 0.02):
            row: dict[str, Any] = {"tau": tau, "slower by": slowdown, "suites": suites}
            alarms: Counter[str] = Counter()
            for _ in range(suites):
                levels = [[[draw.gauss(0, tau) for _ in range(3)]] for _ in range(20)]
                rows_of = [[[level[0][0]] * 3 for level in levels[case::2]] for case in range(2)]
                noise = estimate(rows_of)
                bounds = {
                    "max(2%, 3τ̂)": math.log1p(max(RULE.tolerate, 3 * noise.spread)),
                    "2% + 2.5 × upper bound": RULE.beside_spread(noise.spread_upper).slower_bound,
                }
                for name, bound in bounds.items():
                    alarms[name] += any(
                        min(draw.gauss(0, tau), draw.gauss(0, tau)) + math.log1p(slowdown) > bound
                        for _ in range(SUITE)
                    )
            rows.append(row | {name: alarms[name] / suites for name in bounds})
    return rows


# ---- states that last, and intervals


def states(draw: random.Random, blocks: float, size: float) -> Ratios:
    side = draw.choice((-1, 1))
    while True:
        if draw.random() < 1 / blocks:
            side = -side
        yield side * math.log1p(size) + draw.gauss(0, 0.005)


def correlated(draw: random.Random, rho: float, sigma: float, middle: float) -> Ratios:
    value = draw.gauss(0, 1)
    while True:
        yield middle + sigma * value
        value = rho * value + math.sqrt(1 - rho**2) * draw.gauss(0, 1)


def lasting(draw: random.Random, runs: int) -> list[dict[str, Any]]:
    bound = RULE.slower_bound
    kinds: dict[str, Callable[[], Ratios]] = {
        "states of 30 blocks, 3.5%": lambda: states(draw, 30, 0.035),
        "states of 10 blocks, 3.5%": lambda: states(draw, 10, 0.035),
        "on the bound, rho .5": lambda: correlated(draw, 0.5, 0.01, bound),
        "on the bound, independent": lambda: correlated(draw, 0.0, 0.01, bound),
        "5% slower, sigma 1%": lambda: correlated(draw, 0.0, 0.01, math.log(1.05)),
        "8% slower, drifting": lambda: correlated(draw, 0.95, 0.005, math.log(1.08)),
    }
    rows = []
    for name, ratios in kinds.items():
        counts: Counter[str] = Counter()
        for _ in range(runs):
            first, again = (
                looked_at(draw, ratios(), rule) for rule in (replace(RULE, tests=200), replace(RULE, tests=1))
            )
            for label, side in (("before", 0), ("after", 1)):
                counts[label] += first[side]
                counts[f"{label}, confirmed"] += first[side] and again[side]
        rows.append({"kernel": name, "runs": runs} | {
            f"slower {label}": counts[label] / runs
            for label in ("before", "before, confirmed", "after", "after, confirmed")
        })  # fmt: skip
    return rows


def looked_at(draw: random.Random, ratios: Ratios, rule: Rule) -> tuple[bool, bool]:
    """Whether it is slower, before and after the look at further blocks."""

    def take(orders: Sequence[str]) -> list[Block]:
        return [
            Block(
                order=order,
                ns_per_call=tuple(1e4 * (math.exp(ratio) if letter == "K" else 1.0) for letter in order),
            )
            for order, ratio in zip(orders, ratios, strict=False)
        ]

    sampler = BlockSampler(ready(SHORT), seed=draw.getrandbits(40), base=rule)
    sampler.run(take)
    slower = sampler.comparisons()[0].outcome == "slower"
    sampler.check_autocorrelation(take)
    return slower, slower and sampler.comparisons()[0].outcome == "slower"


def interval(draw: random.Random, runs: int) -> list[dict[str, Any]]:
    rows = []
    for slowdown, sigma in ((0.0, 0.01), (0.0, 0.04), (0.05, 0.01), (0.05, 0.04)):
        true, missed, widths = math.log1p(slowdown), 0, []
        for _ in range(runs):
            test = SequentialTest(RULE)
            values: list[float] = []
            while not test.done:
                values.append(draw.gauss(true, sigma))
                test.add(values[-1])
            low, _, high = median_interval(values)
            missed += not low <= true <= high
            widths.append(high - low)
        rows.append(
            {
                "slower by": slowdown,
                "sigma": sigma,
                "missed": missed / runs,
                "width": statistics.median(widths),
            }
        )
    return rows


if __name__ == "__main__":
    main()
