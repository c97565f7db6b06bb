"""What every timer does: time batches of calls of several arms, all in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from pytest_cgins.core.measurement import ArmName, Method

Arms = Mapping[ArmName, Callable[[int], object]]
"""Each arm runs one call on the copy of its tensors with the given index."""
Order = Sequence[ArmName]
"""Whose batches a block has, one after the other."""

MOST_SEGMENTS = 16
"""Most segments in which batches go through the copies; each is captured by itself, and more would take longer than their batches."""

TWINS: tuple[ArmName, ArmName] = ("kernel", "base")
"""Arms that are compared with each other: they share one number of calls."""


def mark(left_by: list[ArmName | None], arm: ArmName, first: int, calls: int) -> None:
    """Note in `left_by` that the arm called copy `first` and those that follow, so many, over and over."""
    if arm in TWINS:
        for index in range(first, first + min(calls, len(left_by))):
            left_by[index % len(left_by)] = arm


class Timer(Protocol):
    """Times blocks of batches."""

    @property
    def method(self) -> Method:
        """Clock and batching."""

    @property
    def calls(self) -> Mapping[ArmName, int]:
        """Calls in one batch of an arm."""

    @property
    def distinct_calls(self) -> int:
        """Calls of the kernel before a copy of its tensors is used again."""

    @property
    def batches_per_turn(self) -> int:
        """Batches of the kernel until each copy of its tensors that is used at all was used."""

    @property
    def means(self) -> Sequence[float]:
        """Nanoseconds a call over all calls of each batch of the block that was given last; `blocks` may give medians."""

    @property
    def left_by(self) -> Sequence[ArmName | None]:
        """For each copy that the kernel and its base share, who of them called it last."""

    @property
    def batch_seconds(self) -> Mapping[ArmName, float]:
        """About how long a batch of an arm takes, with all that goes with it."""

    def blocks(
        self, orders: Iterable[Order], before: Callable[[], object] = lambda: None
    ) -> Iterator[list[float]]:
        """Run blocks; gives nanoseconds a call for each batch of one block after the other.

        `before` is called where a kernel's own code will run next, outside of what is timed. The next block may be
        under way when one is given.
        """

    def repeat(self, arm: ArmName, calls: int) -> None:
        """Call an arm so many times, in whole batches where there is nothing less, and wait for the device."""


def calls_for(
    target_s: float, seconds_per_call: Mapping[ArmName, float], limit_s: float
) -> dict[ArmName, int]:
    """Calls that make each arm's batch last `target_s`, and all batches together at most `limit_s`.

    The kernel and its base share one number, the faster one's, so that neither has more of its launches hidden in a
    batch than the other.
    """
    seconds = {name: max(one, 1e-9) for name, one in seconds_per_call.items()}
    twins = [seconds[name] for name in TWINS if name in seconds]
    limit = limit_s / len(seconds)
    calls = {}
    for name, one in seconds.items():
        fastest, slowest = (min(twins), max(twins)) if name in TWINS else (one, one)
        calls[name] = max(1, int(min(-(-target_s // fastest), limit // slowest)))
    return calls


def segments_for(calls: int, copies: int, most_calls: int) -> tuple[int, int]:
    """How batches go through the copies: in whole turns, or each through another segment of them.

    Segments are of one length and share no copy: one that another has just used would be found in the cache.

    Returns:
        Calls in a batch, `most_calls` or fewer, and the number of segments.
    """
    if calls >= copies:
        return -(-calls // copies) * copies, 1
    least = max(calls, -(-copies // MOST_SEGMENTS))
    batch = next(length for length in range(least, copies + 1) if copies % length == 0)
    if batch <= most_calls:
        return batch, copies // batch
    return most_calls, min(MOST_SEGMENTS, copies // most_calls)
