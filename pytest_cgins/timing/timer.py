"""What every timer does: time one batch of an arm's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

ArmName = Literal["kernel", "torch"]
Arms = Mapping[ArmName, Callable[[int], object]]
"""Each arm runs one call on the copy of its tensors with the given index."""


class Timer(Protocol):
    """Times batches of `calls_per_batch` calls of each arm, all arms in the same way."""

    calls_per_batch: int
    distinct_calls: int
    """Calls before a copy of the tensors is used again."""
    batch_seconds: float
    """About how long a batch takes on average over the arms, with all that goes with it."""

    @property
    def method(self) -> Literal["cuda-graph", "cuda-event", "perf-counter"]:
        """Clock and batching."""

    def batch(self, arm: ArmName) -> float:
        """Run one batch; gives nanoseconds a call."""


def calls_for(target_s: float, seconds_per_call: Mapping[ArmName, float], limit_s: float) -> int:
    """Calls that make the fastest arm's batch last `target_s`, unless all arms together then pass `limit_s`.

    The arms share one number, so that none has more of its launches hidden in a batch than another.
    """
    times = [max(seconds, 1e-9) for seconds in seconds_per_call.values()]
    wanted = -(-target_s // min(times))
    return max(1, int(min(wanted, limit_s // sum(times))))
