"""Probe `after_timing`: the answers that a kernel gave while it was timed are right, and so are those afterwards.

Before the last timed calls the copies exchange their numbers, and the outputs stay full of the answers to the old
ones; what these calls leave is judged by the rules that judged the kernel before. So is one more call afterwards,
on restored inputs and into poisoned outputs. A kernel that counts its calls, sees that it is timed, or finds its
outputs filled, and from then on does less, is wrong here.

What the calls between leave is compared with the first answer to the same numbers, bit for bit, for a share of the time
that they take: of hundreds of calls all elements, so that an error in one call of fifty is seen, or in one element of a
million. Where answers differ, the first and the one that is farthest from it are judged. After the last block come calls
each of whose answers is looked at, since between blocks it is always the same share of them that is seen.

Of a kernel that allocates its outputs itself two answers are held from before the first timed call to the last: they are
their user's, and stay right.

At last a process that has run nothing else calls the kernel as a program of the project's own would: what tells a kernel
that it is gated (guards and poison around outputs, our modules, what watches it) is not there. The evaluator does that.

Of ops that change their inputs only the call afterwards is judged; where there is one set of numbers, or no memory for
two, poison takes the place of the exchange.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from pytest_cgins.core.bitwise import all_same, distances, snapshot
from pytest_cgins.verify.messages import RaisedError
from pytest_cgins.verify.probe_support.rerun import attempt
from pytest_cgins.verify.probe_support.timed_copy import TimedCopy
from pytest_cgins.verify.probes.registry import When

NAME = "after_timing"
SHARE = 0.1
"""Share of the blocks' time that checking the calls between them may take."""
LEAST_S = 5e-3
"""For a block, however short."""
CALLS = 256
"""After the last block; so many that an error in one call of a hundred is met twice."""
MOST_S = 0.05
"""What they may take."""

_now = time.monotonic  # held, since a kernel could replace what the module has


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """An answer to a set of inputs, during or after timing."""

    name: str
    when: When
    """Between the timed calls, during the last ones, after all of them, in a graph that was refused for its answer, before
    all of them, as it is after them, or in another process."""
    tensors: Sequence[torch.Tensor]
    """The answer; () if there is none."""
    error: RaisedError | None = None


class Repeats:
    """Answers of timed calls, compared with the first answer to the same numbers."""

    def __init__(self) -> None:
        self.calls = 0
        """Whose answers were looked at."""
        self._next = 0
        self._first: dict[str, list[torch.Tensor]] = {}
        self._farthest: dict[str, tuple[float, list[torch.Tensor]]] = {}

    def look(self, copies: Sequence[TimedCopy], seconds: float) -> None:
        """Look at what the last calls have left on copies, one after the other, until the time is over."""
        end = _now() + seconds
        for _ in copies:
            copy = copies[self._next % len(copies)]
            self._next += 1
            if copy.is_left:
                answer, error = attempt(copy.answer_left)
                if error is None:
                    self._take(copy.name, answer)
            if _now() >= end:
                return

    def go_on(self, copies: Sequence[TimedCopy]) -> None:
        """Call on copies in turn and look at each answer, for as many calls as there is time for."""
        end = _now() + MOST_S
        for copy in itertools.islice(itertools.cycle(copies), CALLS):
            if not copy.is_left or _now() >= end:
                return
            result, error = attempt(copy.call_prepared)
            answer, error = ([], error) if error else attempt(partial(copy.finished, result))
            if error is None:
                self._take(copy.name, answer)

    def given(self) -> Iterator[ObservedAnswer]:
        """The first answer and the one farthest from it, for each set that had more than one."""
        for name, (_, answer) in self._farthest.items():
            yield ObservedAnswer(name, "among", self._first[name])
            yield ObservedAnswer(name, "among", answer)

    def _take(self, name: str, answer: list[torch.Tensor]) -> None:
        self.calls += 1
        first = self._first.get(name)
        if first is None:
            self._first[name] = [*map(snapshot, answer)]
        elif not all_same(answer, first):
            distance = _distance(answer, first)
            if distance >= self._farthest.get(name, (0.0, []))[0]:
                self._farthest[name] = distance, [*map(snapshot, answer)]


def _distance(answer: Sequence[torch.Tensor], first: Sequence[torch.Tensor]) -> float:
    """How far apart two answers are at most; infinite where one has no number, or another form."""
    if [one.shape for one in answer] != [one.shape for one in first]:
        return float("inf")
    pairs = (pair for pair in zip(answer, first, strict=True) if pair[0].numel())
    return max((float(distances(*pair).max()) for pair in pairs), default=0.0)


def last(copies: Iterable[TimedCopy]) -> Iterator[ObservedAnswer]:
    """For each set of inputs the answer of one of its last timed calls, as far as it is known."""
    seen: set[str] = set()
    for copy in copies:
        if copy.is_left and copy.name not in seen:
            seen.add(copy.name)
            tensors, error = attempt(copy.answer_left)
            yield ObservedAnswer(copy.name, "last", tensors, error)


def going_on(copies: Sequence[TimedCopy]) -> Iterator[ObservedAnswer]:
    """Answers of further calls that differ from each other; earlier ones may be to numbers that a base had changed."""
    repeats = Repeats()
    repeats.go_on(copies)
    yield from repeats.given()


def after(copies: Iterable[TimedCopy]) -> Iterator[ObservedAnswer]:
    """For each set of inputs the answer of one more call; the calls follow on each other as closely as timed ones."""
    first: dict[str, TimedCopy] = {}
    for copy in copies:
        first.setdefault(copy.name, copy)
    for copy in first.values():
        copy.prepare()
    called = [attempt(copy.call_prepared) for copy in first.values()]
    for copy, (result, error) in zip(first.values(), called, strict=True):
        answer = ([], error) if error else attempt(partial(copy.finished, result))
        yield ObservedAnswer(copy.name, "after", *answer)
