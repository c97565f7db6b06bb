"""Probe `repeat`: the same inputs at other addresses must give the same answer, bit for bit.

Different answers come from a race, from memory that was never initialised, from atomics in no fixed order, or
from a result that was kept for an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_cgins.probes.bits import all_same
from pytest_cgins.probes.raised import attempt
from pytest_cgins.probes.trial import Deviation, Trial

NAME = "repeat"
REMEDY = (
    "if no order of atomics explains it, look for a race: --cgins-sanitize=racecheck; a kernel that may differ says "
    "so in cgins.yaml: repeatable: tolerance, or {rtol: …, atol: …}"
)


def deviations(trials: Iterable[Trial]) -> Iterator[Deviation]:
    """Run each trial again; what differs from its first answer."""
    for trial in trials:
        tensors, error = attempt(trial.again)
        if error is not None or not all_same(tensors, trial.answer):
            yield Deviation(NAME, trial.name, tensors, error)
