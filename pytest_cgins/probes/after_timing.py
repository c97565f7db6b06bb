"""Probe `after_timing`: the answers that a kernel gave while it was timed are right, and so are those afterwards.

Before the last timed calls the copies exchange their numbers, and the outputs stay full of the answers to the old
ones; what these calls leave is judged by the rules that judged the kernel before. So is one more call afterwards,
on restored inputs and into poisoned outputs. A kernel that counts its calls, sees that it is timed, or finds its
outputs filled, and from then on does less, is wrong here.

It could still do less in the calls between, which nobody looks at, if it knew which ones will be the last: by
looking whether its inputs changed, say, which takes the time to read them. Of ops that change their inputs only
the call afterwards is judged; where there is one set of numbers, or no memory for two, poison takes the place of
the exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from pytest_cgins.probes.raised import attempt

NAME = "after_timing"

When = Literal["last", "after"]
_WHEN: dict[str, str] = {"last": "the last timed call", "after": "a call after it was timed"}


class TimedCopy(Protocol):
    """One copy of a call's tensors on which the kernel was timed."""

    @property
    def name(self) -> str:
        """Name of its set of inputs."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether an answer of a timed call is there: an op that changes its inputs, or no call, leaves none."""
        ...

    def answer_left(self) -> list[torch.Tensor]:
        """What its last timed call gave."""
        ...

    def once_more(self) -> list[torch.Tensor]:
        """Run on restored inputs into poisoned outputs; gives outputs, and after them the mutated inputs."""
        ...


@dataclass(frozen=True, slots=True)
class Given:
    """An answer to a set of inputs, during or after timing."""

    name: str
    """The set."""
    when: When
    """During the last timed calls, or after all of them."""
    tensors: Sequence[torch.Tensor]
    """The answer; () if there is none."""
    error: dict[str, Any] | None = None
    """What the kernel raised instead."""


def last(copies: Iterable[TimedCopy]) -> Iterator[Given]:
    """For each set of inputs the answer of one of its last timed calls, as far as it is known."""
    seen: set[str] = set()
    for copy in copies:
        if copy.is_left and copy.name not in seen:
            seen.add(copy.name)
            tensors, error = attempt(copy.answer_left)
            yield Given(copy.name, "last", tensors, error)


def after(copies: Iterable[TimedCopy]) -> Iterator[Given]:
    """For each set of inputs the answer of one more call."""
    seen: set[str] = set()
    for copy in copies:
        if copy.name not in seen:
            seen.add(copy.name)
            tensors, error = attempt(copy.once_more)
            yield Given(copy.name, "after", tensors, error)


def judge(when: str, inputs: str, wrong: str) -> str:
    """What to say of an answer that is wrong, or that is not there.

    Args:
        when: as in `Given`.
        inputs: name of the set.
        wrong: message of the check that failed, or what the kernel raised.
    """
    return f"right when it was verified, wrong in {_WHEN[when]} ({inputs} inputs): {wrong}"
