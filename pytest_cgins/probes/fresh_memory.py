"""Probe `fresh_memory`: other numbers in the same tensors must give the other answer.

It finds results that were kept by the identity or address of a tensor, and kernels that read their inputs only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_cgins.probes.bits import all_same
from pytest_cgins.probes.raised import attempt
from pytest_cgins.probes.trial import Deviation, Trial

NAME = "fresh_memory"


def deviations(trials: Sequence[Trial]) -> Iterator[Deviation]:
    """Fill the tensors of each trial with the next alike one's numbers; what differs from that one's answer."""
    for index, trial in enumerate(trials):
        others = [*trials[index + 1 :], *trials[:index]]
        other = next((one for one in others if trial.alike(one)), None)
        if other is None:
            continue
        tensors, error = attempt(lambda trial=trial, other=other: trial.with_content_of(other))  # type: ignore[misc]
        if error is not None or not all_same(tensors, other.answer):
            yield Deviation(NAME, other.name, tensors, error)
