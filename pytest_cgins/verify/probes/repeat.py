"""Probe `repeat`: the same inputs at other addresses must give the same answer, bit for bit.

Different answers come from a race, from memory that was never initialised, from atomics in no fixed order, or
from a result that was kept for an address. Threads meet by chance, on busy processors seldom: what takes longest is run more often.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

from pytest_cgins.core.bitwise import all_same
from pytest_cgins.verify.probe_support.rerun import Deviation, attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial

NAME = "repeat"
MORE = 16
"""Further runs of the set that takes longest, if they take no longer than `MORE_NS` together."""
MORE_NS = 20_000_000


def deviations(trials: Iterable[SetTrial]) -> Iterator[Deviation]:
    """Run each trial again; what differs from its first answer."""
    slowest, longest_ns = None, 0
    for trial in trials:
        begun_ns = time.perf_counter_ns()
        found = once_more(trial)
        took_ns = time.perf_counter_ns() - begun_ns
        if found is not None:
            yield found
        elif took_ns > longest_ns:
            slowest, longest_ns = trial, took_ns
    if slowest is not None:
        further = (once_more(slowest) for _ in range(min(MORE, MORE_NS // longest_ns)))
        yield from itertools.islice((one for one in further if one is not None), 1)


def once_more(trial: SetTrial) -> Deviation | None:
    """What another call on the inputs gives instead of the answer."""
    tensors, error = attempt(trial.again)
    same = error is None and all_same(tensors, trial.answer)
    return None if same else Deviation(NAME, trial.name, tensors, error)
