"""Probe `fresh_memory`: other numbers in the same tensors must give the other answer.

It finds results that were kept by the identity or address of a tensor, and kernels that read their inputs only once.

A race gives another answer here, too. Stale is what these tensors give each time, if it is an answer that was given to
other numbers, bit for bit, or if the numbers give their first answer in their own tensors: then a part of an answer, or
an input, was kept. Anything else is a kernel that does not repeat its answers, and is called so. A race that loses the
same additions three times in a row is taken for stale; a kernel that keeps a part of an answer and adds up the rest in
any order is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from pytest_cgins.probes.bits import all_same, snapshot
from pytest_cgins.probes.raised import attempt
from pytest_cgins.probes.trial import Deviation, Trial

NAME = "fresh_memory"
ROUNDS = 2
"""How often a wrong answer is asked for again."""


def deviations(trials: Sequence[Trial]) -> Iterator[Deviation]:
    """Fill the tensors of each trial with the next alike one's numbers; what differs from that one's answer."""
    for index, trial in enumerate(trials):
        others = [*trials[index + 1 :], *trials[:index]]
        other = next((one for one in others if trial.alike(one)), None)
        if other is None:
            continue
        tensors, error = attempt(lambda trial=trial, other=other: trial.with_content_of(other))  # type: ignore[misc]
        if error is None and all_same(tensors, other.answer):
            continue
        # The kernel may return the same memory when it is asked again.
        given = [snapshot(tensor) for tensor in tensors]
        before = [one.answer for one in trials if one is not other]
        kept = error is None and _comes_again(trial, other, given)
        kept = kept and (_was_given(given, before) or _repeats_its_own(other))
        yield Deviation(NAME, other.name, given, error, reused=kept)


def _comes_again(trial: Trial, other: Trial, given: Sequence[torch.Tensor]) -> bool:
    """Whether these tensors, filled with the other's numbers again, give the same."""
    return all(_gives(lambda: trial.with_content_of(other), given) for _ in range(ROUNDS))


def _was_given(given: Sequence[torch.Tensor], before: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether it is the answer to other numbers; zeros are also what a kernel gives that does nothing."""
    return any(bool(tensor.count_nonzero()) for tensor in given) and any(
        all_same(given, answer) for answer in before
    )


def _repeats_its_own(other: Trial) -> bool:
    """Whether the other's own tensors, filled with its own numbers, give its first answer still.

    Copies would do if they were at addresses that the kernel never saw.
    """
    return all(_gives(lambda: other.with_content_of(other), other.answer) for _ in range(ROUNDS))


def _gives(run: Callable[[], list[torch.Tensor]], answer: Sequence[torch.Tensor]) -> bool:
    tensors, error = attempt(run)
    return error is None and all_same(tensors, answer)
