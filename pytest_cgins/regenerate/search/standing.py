"""How a candidate stands to the best one until then: what its times prove."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_cgins.core.model import Evaluation, Status


def ratio(evaluations: Iterable[Evaluation]) -> float | None:
    """Time over the base's: the geometric mean over the cases that were timed beside it; None without any.

    Each case's is the median over blocks of the sequential test, which interleaves both.
    """
    logs = [
        math.log(against.ratio)
        for one in evaluations
        if one.measurement is not None and (against := one.measurement.against("base")) is not None
    ]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def beats(evaluations: Iterable[Evaluation]) -> bool:
    """Whether it is proven faster in a case, and slower in none."""
    statuses = {one.verdict.status for one in evaluations}
    return Status.FASTER in statuses and Status.SLOWER not in statuses
