"""Measurements made to measure: real tests on log ratios that a caller chooses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pytest_cgins.core.measurement import Arm, ArmName, Comparison, Measurement
from pytest_cgins.timing.sequential import Rule, SequentialTest, with_runs_test
from pytest_cgins.timing.sum_test import SumTest, with_sums

RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=200, most_blocks=64)
REVISION = "1a2b3c4d5e" * 4
LABEL = "1a2b3c4d5e (merge-base with main)"


def blocks(middle: float, sigma: float = 0.01, *, most: int = 64, seed: int = 1) -> list[float]:
    """Log ratios of blocks."""
    draw = random.Random(seed)
    return [draw.gauss(middle, sigma) for _ in range(most)]


def compared(
    against: Literal["base", "torch"],
    log_ratios: Sequence[float],
    *,
    rule: Rule = RULE,
    shift: float = 0.0,
    sums: Sequence[float] = (),
    runs: float | None = None,
) -> Comparison:
    """The test on these blocks, and that on these sums if there are any, as far as they go; and a look beyond."""
    test = SequentialTest(rule, shift=shift)
    for one in log_ratios:
        test.add(one)
        if test.done:
            break
    summed = SumTest(rule, calls=36, shift=shift)
    for one in sums:
        if summed.open:
            summed.add(one)
    comparison = test.comparison(against)
    if runs is not None:
        comparison = with_runs_test(comparison, runs)
    return with_sums(comparison, summed.sums()) if sums else comparison


def arm(name: ArmName, median_ns_per_call: float) -> Arm:
    """One with two batches."""
    return Arm(
        name=name,
        samples_ns_per_call=(median_ns_per_call, median_ns_per_call),
        calls_per_batch=20,
        median_ns_per_call=median_ns_per_call,
        iqr_ns_per_call=0.0,
    )


def measured(
    *comparisons: Comparison,
    kernel_ns: float = 10_000.0,
    base_ns: float | None = None,
    torch_ns: float = 20_000.0,
    again: Sequence[Comparison] | None = None,
) -> Measurement:
    """Three arms where there is a comparison with the base, else two; `again` is what a fresh process found."""
    based = any(one.against == "base" for one in comparisons)
    speed = torch_ns / kernel_ns
    one = Measurement(
        method="cuda-graph",
        cache="cold",
        orders="TKBBKT" if based else "KTTK",
        kernel=arm("kernel", kernel_ns),
        torch=arm("torch", torch_ns),
        base=arm("base", base_ns or kernel_ns) if based else None,
        speedup_vs_torch=speed,
        speedup_low=0.99 * speed,
        speedup_high=1.01 * speed,
        comparisons=comparisons,
        base_revision=REVISION if based else "",
        timed_ns=12.5e6,
    )
    return one if again is None else replace(one, confirmation=replace(one, comparisons=tuple(again)))
