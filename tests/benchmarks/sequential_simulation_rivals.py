"""Rules by which times are gated elsewhere, on the samples that `sequential_simulation.py` draws.

Samples are logarithms of times, a row a case, in the order in which they were taken: two a block and arm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_cgins.timing.sequential import Rule

MANN_WHITNEY = "Mann–Whitney p < 0.05, after each block"
MANN_WHITNEY_FACTOR = "Mann–Whitney p < 0.05 and 1.1×, after each block"
STORED = "medians, 5% against a stored run"
INTERLEAVED = "medians, 5%, the same blocks"
FIXED = "sign test of all blocks, p < α/N"
RIVALS = {
    MANN_WHITNEY: "two-sided, normal approximation, from 4 samples an arm on; an alarm if the kernel is the slower one",
    MANN_WHITNEY_FACTOR: "and the ratio of the medians is at least 1.1",
    STORED: "the arm it is compared with was timed in another session; sessions differ by 2% (standard deviation)",
    INTERLEAVED: "the ratio of the medians of all samples is above 1.05",
    FIXED: "that the median block is not above what is tolerated, looked at once",
}
FIRST_BLOCKS = 2
SESSIONS = 0.02


def rivals(
    kernel: Any, base: Any, ratios: Any, rule: Rule, source: np.random.Generator
) -> dict[str, tuple[Any, Any]]:
    """By rule: whether each row ends in an alarm, and after how many blocks."""
    tests, blocks = ratios.shape
    all_blocks = np.full(tests, blocks)
    gap = np.median(kernel, axis=1) - np.median(base, axis=1)
    sessions = SESSIONS * (source.standard_normal(tests) - source.standard_normal(tests))
    plain, factor = mann_whitney(kernel, base)
    return {
        MANN_WHITNEY: plain,
        MANN_WHITNEY_FACTOR: factor,
        STORED: (gap + sessions > math.log(1.05), all_blocks),
        INTERLEAVED: (gap > math.log(1.05), all_blocks),
        FIXED: (
            (ratios > rule.slower_bound).sum(axis=1) >= sign_test(blocks, rule.alpha / rule.tests),
            all_blocks,
        ),
    }


def mann_whitney(kernel: Any, base: Any) -> list[tuple[Any, Any]]:
    """Alarms and blocks without and with the factor; the first look that alarms ends it."""
    tests, samples = kernel.shape
    above = np.zeros(tests)
    alarms = [np.zeros(tests, dtype=bool) for _ in range(2)]
    blocks = [np.full(tests, samples // 2) for _ in range(2)]
    for n in range(1, samples // 2 + 1):
        seen = 2 * n
        for new in range(seen - 2, seen):
            above += (kernel[:, new, None] > base[:, : new + 1]).sum(axis=1)
            above += (kernel[:, :new] > base[:, new, None]).sum(axis=1)
        if n < FIRST_BLOCKS:
            continue
        z = (above - seen**2 / 2) / math.sqrt(seen**2 * (2 * seen + 1) / 12)
        gap = np.median(kernel[:, :seen], axis=1) - np.median(base[:, :seen], axis=1)
        for kind, alarm in enumerate((z > 1.96, (z > 1.96) & (gap >= math.log(1.1)))):
            first = alarm & ~alarms[kind]
            blocks[kind][first] = n
            alarms[kind] |= first
    return list(zip(alarms, blocks, strict=True))


def sign_test(blocks: int, level: float) -> int:
    """Least number of blocks above the bound whose chance, or that of more, is at most `level`."""
    tail, least = 0, blocks + 1
    while (tail + math.comb(blocks, least - 1)) / 2**blocks <= level:
        least -= 1
        tail += math.comb(blocks, least)
    return least
