"""Chooses which of many tests to list, so that few of the listed ones are false alarms: e-Benjamini-Hochberg."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_cgins.core.text import counted


def e_bh(log_es: Sequence[float], alpha: float, *, tests: int | None = None) -> tuple[int, ...]:
    """Indices of the hypotheses to reject, ascending: of these at most a share of `alpha` is expected to be true.

    That holds however the e-values depend on each other, and each may come from a test that was stopped early. With K
    hypotheses the k with the greatest e-values are rejected, for the greatest k with k·e₍ₖ₎ ≥ K/α. K is `tests`, if some
    were made whose e-values are not known here; these count as 0. (Wang and Ramdas, "False discovery rate control with
    e-values", 2022.)

    Raises:
        ValueError: `alpha` is not a share, an e-value is not a number, or `tests` is less than there are e-values.
    """
    count = len(log_es) if tests is None else tests
    if not 0 < alpha < 1 or count < len(log_es) or any(math.isnan(log_e) for log_e in log_es):
        raise ValueError(
            f"no e-BH of {len(log_es)} e-values in {counted(count, 'test')} at {alpha}: {log_es}"
        )
    order = sorted(range(len(log_es)), key=lambda index: -log_es[index])
    enough = [
        rank
        for rank, index in enumerate(order, start=1)
        if math.log(rank) + log_es[index] >= math.log(count) - math.log(alpha)
    ]
    return tuple(sorted(order[: max(enough, default=0)]))
