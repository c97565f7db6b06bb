"""What a case can tell from the right answer: forged answers that some rule must refuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.model import ForgeryCheck
from pytest_cgins.verify.compare import ExpectedSet, accepts

Forgery = Literal["zeros", "ones", "input-copy", "permuted-gold"]
FORGERIES: tuple[Forgery, ...] = ("zeros", "ones", "input-copy", "permuted-gold")


def check(sets: Sequence[ExpectedSet], tolerance: Tolerance) -> tuple[ForgeryCheck, ...]:
    """One result for each forgery that can be made for this case.

    A forgery is caught if some rule refuses it on some set of inputs. Where several inputs could be
    copied, each must be caught, but for one that equals the answer on other inputs than the recorded too.
    """
    results = []
    identical = set.intersection(*map(_identical, sets)) if len(sets) > 1 else set()
    for forgery in FORGERIES:
        variants = [list(_forge(forgery, expected, identical)) for expected in sets]
        made = min((len(variant) for variant in variants), default=0)
        if made == 0:
            continue
        caught = all(
            any(
                not accepts(expected, variant[number], tolerance)
                for expected, variant in zip(sets, variants, strict=True)
            )
            for number in range(made)
        )
        results.append(ForgeryCheck(forgery=forgery, caught=caught))
    return tuple(results)


def _identical(expected: ExpectedSet) -> set[str]:
    """Arguments that equal every output: dropout in evaluation is to give its input."""
    return {
        name
        for name, argument in expected.arguments.items()
        if expected.outputs
        and all(
            _alike(argument, output.answer) and torch.equal(argument, output.answer)
            for output in expected.outputs
        )
    }


def _forge(forgery: Forgery, expected: ExpectedSet, identical: set[str]) -> Iterator[list[Tensor]]:
    """Forged outputs, in place of all outputs; several for several inputs that could be copied."""
    truths = [output.answer for output in expected.outputs]
    if not truths:
        return
    if forgery == "zeros":
        yield [torch.zeros_like(truth) for truth in truths]
    elif forgery == "ones":
        yield [torch.ones_like(truth) for truth in truths]
    elif forgery == "permuted-gold":
        # Of random numbers any order is as good, and some ops promise none.
        drawn = any(output.draws is not None for output in expected.outputs)
        moved = [permuted(truth) for truth in truths]
        free = expected.arrangement is not None and all(map(torch.equal, expected.arranged(moved), truths))
        if not drawn and not free and any(truth.numel() > 1 for truth in truths):
            yield moved
    else:
        for name, argument in expected.arguments.items():
            if name not in identical and any(_alike(argument, truth) for truth in truths):
                yield [argument if _alike(argument, truth) else truth for truth in truths]


def permuted(answer: Tensor) -> Tensor:
    """Rows moved down by one, the last to the top; elements where there is but one row."""
    if answer.numel() == 0:
        return answer
    rows = answer.reshape(-1, answer.shape[-1]) if answer.ndim else answer.reshape(1, 1)
    return rows.roll(1, 0 if rows.shape[0] > 1 else 1).reshape(answer.shape)


def _alike(argument: Tensor, answer: Tensor) -> bool:
    return argument.shape == answer.shape and argument.dtype == answer.dtype
