"""Probe `sizes`: the same op on other sizes, one more, one less or a prime, as tails of tiles and constants show, and on no rows.

Dimensions and integer arguments of one size move together, and torch decides which moves are legal by running them.
A kernel may refuse a size with an error; what it answers must be right. An empty batch is a size as well, and no
refusal is what a launch of no blocks, or a division by the number of rows, ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from pytest_cgins.trace.modules import is_module_call
from pytest_cgins.verify.maker import InputSet, Maker
from pytest_cgins.verify.places import LEAST, Moves, Places
from pytest_cgins.verify.semantics import Semantics
from pytest_cgins.verify.size_trial import FEW_ROWS, MOST_ROWS, NAME, Trial, prime_above, prime_below

__all__ = ["NAME", "sets"]
REPEATED_BYTES = 64 << 10
"""Up to here a third set costs nothing that would be noticed."""


def sets(
    maker: Maker,
    semantics: Semantics,
    recorded: Sequence[torch.Tensor],
    key: str,
    *,
    interpreted: bool = False,
) -> tuple[list[InputSet], str]:
    """At most three sets of other sizes, one of many rows, one of what is left, and an empty one, or none and why.

    Args:
        maker: of the trace.
        semantics: of its call.
        recorded: argument tensors, on the CPU.
        key: seed of the session and name of the trace.
        interpreted: whether the kernel is, so that many rows take long.
    """
    places = Places(maker.call, semantics, recorded)
    if places.are_tied:
        return [], "the op changes an argument that shares its memory with another"
    if not places.sizes and not places.batches(semantics):
        own = ", and those of a module's state belong to it" if is_module_call(maker.call) else ""
        return [], f"no argument has a size that may change{own}"
    trial = Trial(maker, semantics, recorded, key, places)
    found: list[InputSet] = []

    def take(made: InputSet | None) -> None:
        if made is not None and all(made.expected.name != other.expected.name for other in found):
            found.append(made)

    for plan in _plans(places, trial.small, trial.nbytes(trial.small) <= REPEATED_BYTES):
        take(trial.first_legal(plan))
    take(trial.many(FEW_ROWS if interpreted else MOST_ROWS))
    take(trial.rest(found))
    take(trial.empty())
    return found, "" if found else f"torch refuses every other size that was tried ({trial.refusal})"


def _plans(places: Places, small: Moves, again: bool) -> Iterator[list[Moves]]:
    """For each set the moves to try, the most telling first; `small` halves what is too large."""
    inner, others = places.inner, places.others

    def to(new: Callable[[int], int], *sizes: int) -> Moves:
        return {**small, **{n: new(small.get(n, n)) for n in sizes}}

    yield [to(_one_more, n) for n in (*inner, *others)]
    if others:
        yield [to(prime_above, *others), *(to(prime_above, n) for n in others)]
    elif inner:
        yield [to(prime_below, *inner)]
    if again and inner:
        yield [to(_one_less, *inner)]


def _one_more(size: int) -> int:
    return size + 1


def _one_less(size: int) -> int:
    return size - 1 if size > LEAST else size + 1
