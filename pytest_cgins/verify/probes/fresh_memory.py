"""Probe `fresh_memory`: other numbers in the same tensors must give the other answer.

It finds results that were kept by the identity or address of a tensor, and kernels that read their inputs only once. Then
tensors that the kernel has never seen begin with single elements changed, and get the set's own numbers afterwards: who looks
at some elements to learn whether all are what they were misses that.

A race gives another answer here, too. Stale is what these tensors give each time, if it is an answer that was given to
other numbers, bit for bit, or if the numbers give their first answer in their own tensors: then a part of an answer, or
an input, was kept. Anything else is a kernel that does not repeat its answers, and is called so. A race that loses the
same additions three times in a row is taken for stale; a kernel that keeps a part of an answer and adds up the rest in
any order is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from pytest_cgins.core.bitwise import all_same, snapshot
from pytest_cgins.verify.probe_support.rerun import Deviation, attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial

NAME = "fresh_memory"
ROUNDS = 2
"""How often a wrong answer is asked for again."""
ROUNDS_OF_ELEMENTS = 4
"""How often a set begins with elements changed."""
ELEMENTS_S = 0.1
"""After this long no more are."""

_now = time.monotonic  # held, since a kernel could replace what the module has


def deviations(trials: Sequence[SetTrial]) -> Iterator[Deviation]:
    """Fill the tensors of each trial with the next alike one's numbers; what differs from that one's answer."""
    end: float | None = None
    for index, trial in enumerate(trials):
        others = [*trials[index + 1 :], *trials[:index]]
        other = next((one for one in others if trial.alike(one)), None)
        found = other and _exchanged(trial, other, [one.answer for one in trials if one is not other])
        end = end or _now() + ELEMENTS_S
        found = found or _put_back(trial, end)
        if found:
            yield found


def _exchanged(
    trial: SetTrial, other: SetTrial, before: Sequence[Sequence[torch.Tensor]]
) -> Deviation | None:
    run = partial(trial.with_content_of, other)
    return _deviation(other, run, before, partial(other.with_content_of, other))


def _put_back(trial: SetTrial, end: float) -> Deviation | None:
    """A deviation when the tensors began with other elements, tried for some rounds until the time is over."""
    held: list[Callable[..., list[torch.Tensor]]] = []  # so that each round's tensors lie elsewhere
    found = None
    while found is None and len(held) < ROUNDS_OF_ELEMENTS and _now() < end:
        held.append(trial.elsewhere())
        changed, _ = attempt(partial(held[-1], changed=True))
        found = _deviation(trial, held[-1], [[*map(snapshot, changed)]], trial.again)
    return found


def _deviation(
    trial: SetTrial,
    run: Callable[[], list[torch.Tensor]],
    before: Sequence[Sequence[torch.Tensor]],
    beside: Callable[[], list[torch.Tensor]],
) -> Deviation | None:
    """What a run on a trial's numbers gives instead of its answer; kept if it was given before, or if tensors beside give that."""
    tensors, error = attempt(run)
    if error is None and all_same(tensors, trial.answer):
        return None
    # The kernel may return the same memory when it is asked again.
    given = [snapshot(tensor) for tensor in tensors]
    again = error is None and _gives(run, given)
    kept = again and (_was_given(given, before) or _gives(beside, trial.answer))
    return Deviation(NAME, trial.name, given, error, reused=kept)


def _was_given(given: Sequence[torch.Tensor], before: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether it is the answer to other numbers; zeros are also what a kernel gives that does nothing."""
    has_some = any(bool(tensor.count_nonzero()) for tensor in given)
    return has_some and any(all_same(given, answer) for answer in before)


def _gives(run: Callable[[], list[torch.Tensor]], answer: Sequence[torch.Tensor]) -> bool:
    """Whether a run gives an answer each time.

    Where numbers were exchanged, copies would not do beside: they may be at addresses that the kernel has seen.
    """
    for _ in range(ROUNDS):
        tensors, error = attempt(run)
        if error is not None or not all_same(tensors, answer):
            return False
    return True
