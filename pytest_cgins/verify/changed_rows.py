"""Rows of answers to sets of the probe `invariance`: those that belong to a set, and those whose bits changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import movable
from pytest_cgins.core.text import counted
from pytest_cgins.verify.input_sets import InputSet


def own_rows(input_set: InputSet, got: Sequence[Tensor]) -> list[Tensor]:
    """The outputs that have rows, with torch's answer where a row is not compared; as they are where their number is wrong."""
    trial = input_set.rows
    if trial is None or len(got) != trial.count:
        return list(got)
    own = []
    foreign = torch.tensor([row < 0 for row in trial.sources])
    for output in input_set.expected.outputs:
        tensor = got[output.index]
        if (
            bool(foreign.any())
            and tensor.shape == output.answer.shape
            and tensor.dtype == output.answer.dtype
        ):
            tensor = tensor.clone()
            view, given = (movable(each.movedim(trial.axis, 0)) for each in (tensor, output.answer))
            view[foreign] = given[foreign]
        own.append(tensor)
    return own


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Rows of a set whose bits a kernel gave otherwise in the set before."""

    inputs: InputSet
    changed: int
    compared: int
    greatest: float
    """How far they changed at most; infinite where one became NaN."""

    @property
    def words(self) -> str:
        """How many changed, and by how much."""
        return f"{self.changed} of {counted(self.compared, 'row')}, by up to {self.greatest:.3g}"


def changed_rows(answered: Sequence[tuple[InputSet, Sequence[Tensor]]]) -> Iterator[ChangedRows]:
    """The sets of this probe, in order and with `own_rows` of each answer, on which a kernel gave rows other bits than before."""
    answers = [(input_set, input_set.rows, got) for input_set, got in answered if input_set.rows is not None]
    named = {each[0].expected.name: each for each in answers}
    first = next((each for each in answers if not each[1].base), None)
    for input_set, trial, got in answers:
        base = named.get(trial.base) if trial.base else first if trial.axis == 0 else None
        if base is None or base[0] is input_set or len(base[2]) != len(got):
            continue
        rows = range(len(trial.sources)) if trial.base else base[1].sources
        where = {row: position for position, row in enumerate(rows)}
        pairs = [(where[row], position) for position, row in enumerate(trial.sources) if row in where]
        if pairs:
            change = _change(input_set, base[2], got, pairs, trial.axis)
            if change.changed:
                yield change


def _change(
    input_set: InputSet,
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    pairs: Sequence[tuple[int, int]],
    axis: int,
) -> ChangedRows:
    old, new = (torch.tensor(positions) for positions in zip(*pairs, strict=True))
    changed = torch.zeros(len(pairs), dtype=torch.bool)
    greatest = 0.0
    for one, other in zip(before, after, strict=True):
        first = movable(one).index_select(axis, old.to(one.device)).view(one.dtype)
        second = movable(other).index_select(axis, new.to(other.device)).view(other.dtype)
        if first.shape != second.shape or first.dtype != second.dtype:
            continue
        differs = bits_differ(first, second, axis).cpu()
        changed |= differs
        if bool(differs.any()):
            distance = (first.to(torch.float64) - second.to(torch.float64)).abs()
            greatest = max(greatest, float(distance.nan_to_num(nan=torch.inf).max()))
    return ChangedRows(inputs=input_set, changed=int(changed.sum()), compared=len(pairs), greatest=greatest)


def bits_differ(first: Tensor, second: Tensor, axis: int) -> Tensor:
    """Which rows differ in any bit."""
    rows = [tensor.movedim(axis, 0).contiguous() for tensor in (first, second)]
    if not first.numel():
        return torch.zeros(rows[0].shape[0], dtype=torch.bool)
    flat = [tensor.reshape(len(tensor), -1).view(torch.uint8) for tensor in rows]
    return (flat[0] != flat[1]).any(-1)
