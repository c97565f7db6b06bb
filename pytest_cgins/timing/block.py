"""One block of batches: the order of its arms, and how long each took."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cgins.core.measurement import ARM_LETTERS, ArmName
from pytest_cgins.core.text import counted
from pytest_cgins.timing.clock_watch import Reading
from pytest_cgins.timing.timer import TWINS

LETTER_ARMS: dict[str, ArmName] = {letter: arm for arm, letter in ARM_LETTERS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Reading):
    """What was measured in one block, with the clock at its end."""

    order: str
    """Letters of the arms, as in `measurement.ARM_LETTERS`."""
    ns_per_call: tuple[float, ...]
    """One a letter."""
    mean_ns_per_call: tuple[float, ...] = ()
    """Mean over all calls of a batch, where `ns_per_call` covers only the middle loop; () if both cover the same calls."""

    def __post_init__(self) -> None:
        if not self.order or len(self.order) % 2 or self.order != self.order[::-1]:
            raise ValueError(f"{self.order!r} is not the order of a block: it reads the same from both ends")
        if len(self.ns_per_call) != len(self.order):
            raise ValueError(f"{counted(len(self.ns_per_call), 'time')} for a block {self.order}")
        if self.mean_ns_per_call and len(self.mean_ns_per_call) != len(self.order):
            raise ValueError(f"{counted(len(self.mean_ns_per_call), 'mean')} for a block {self.order}")
        times = (*self.ns_per_call, *self.mean_ns_per_call)
        if not all(0 < time < math.inf for time in times):
            raise ValueError(f"a time must be finite and above 0: {times}")

    def times(self, arm: ArmName) -> tuple[float, ...]:
        """Times of an arm's batches, in nanoseconds a call; () if it has none."""
        letter = ARM_LETTERS[arm]
        return tuple(time for own, time in zip(self.order, self.ns_per_call, strict=True) if own == letter)

    def total(self, arm: ArmName) -> float:
        """Sum of the means of an arm's batches, which have equal numbers of calls; 0 if it has none."""
        letter = ARM_LETTERS[arm]
        means = self.mean_ns_per_call or self.ns_per_call
        return math.fsum(mean for own, mean in zip(self.order, means, strict=True) if own == letter)

    def log_ratio(self, arm: ArmName, against: ArmName) -> float | None:
        """½(ln a₁ + ln a₂ − ln b₁ − ln b₂): drift that is linear in time cancels; None if an arm is not in it."""
        ours, theirs = self.times(arm), self.times(against)
        if not ours or not theirs:
            return None
        return sum(map(math.log, ours)) / len(ours) - sum(map(math.log, theirs)) / len(theirs)


def draw_order(arms: Sequence[ArmName], choice: random.Random) -> str:
    """A palindrome of the arms in a random order.

    Beside the kernel and its base other arms stand between them, so that none is its own neighbour and finds its
    tensors in the cache.
    """
    half = choice.sample(list(arms), len(arms))
    if all(twin in half for twin in TWINS):
        first, last = choice.sample(TWINS, 2)
        half = [first, *(arm for arm in half if arm not in TWINS), last]
    letters = "".join(ARM_LETTERS[arm] for arm in half)
    return letters + letters[::-1]
