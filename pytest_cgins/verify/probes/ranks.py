"""Probe `ranks`: processes that call a kernel together give the same answers when one of them comes late.

Calls follow each other without a barrier, with other numbers in the same tensors each time, and one rank after another is late:
what is read before its owner has written it, or after it has written for the next call, is another answer then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial

from pytest_cgins.core.bitwise import all_same, snapshot
from pytest_cgins.core.verdict import Reason
from pytest_cgins.verify.probe_support.rerun import Deviation, attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial
from pytest_cgins.verify.rank_group import RankGroup

NAME = "ranks"
REMEDIES = {
    Reason.STALE_ANSWER: "have each rank wait for the others before it reads what they write, and before it writes again",
    Reason.RANK_RACE: "order what ranks read and write by a barrier, a signal or a collective, not by time",
    Reason.RANKS_DISAGREE: "add up in one order on all ranks, or compute on one and send the result",
}
LATE_S = (0.0, 0.0002, 0.001, 0.004)
"""By how much a rank is late."""
LEAST_CALLS, MOST_CALLS = 12, 100
BUDGET_S = 10.0
"""For all calls, beyond the least number of them."""

_sleep, _now = time.sleep, time.perf_counter  # held, since a kernel could replace what the module has


def deviations(trials: Sequence[SetTrial], group: RankGroup) -> list[Deviation]:
    """The first answer to each set that is another one; ends with an error, which leaves the other ranks waiting."""
    found: dict[str, Deviation] = {}
    lot = random.Random(group.rank)  # noqa: S311
    begun, done, calls = _now(), 0, MOST_CALLS
    while done < calls:
        trial = trials[done % len(trials)]
        late = (done // len(trials)) % (group.count + 1)  # of the last number there is no rank
        if late == group.rank:
            _sleep(lot.choice(LATE_S))
        tensors, error = attempt(partial(trials[0].with_content_of, trial))
        if error is not None or (trial.name not in found and not all_same(tensors, trial.answer)):
            about = f"when rank {late} comes late" if late < group.count else "when calls follow each other"
            given = [snapshot(tensor) for tensor in tensors]
            found[trial.name] = Deviation(NAME, trial.name, given, error, about=about)
        if error is not None:
            break
        done += 1
        if done == LEAST_CALLS:  # of slow calls so many as the slowest rank has time for
            each = max(1, group.greatest(int(1e6 * (_now() - begun) / done)))
            calls = min(calls, max(done, int(1e6 * BUDGET_S / each)))
    return list(found.values())
