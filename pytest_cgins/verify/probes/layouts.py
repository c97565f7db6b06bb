"""Probe `layouts`: the same numbers in other places of memory, each argument by itself.

A kernel may refuse strides and addresses with an error, unless its entry in cgins.yaml has `claims: [strided,
misaligned]`; what it answers must be right. Arguments move one at a time: a kernel that refuses a weight with gaps has
said nothing of its input. The expected answers are those to the same numbers as they lay before, so that the sets
cost no run of torch; but for one row that is repeated at a stride of 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from pytest_cgins.core.layout import lay_out
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.semantics import ENTRIES, Semantics, op_word
from pytest_cgins.verify.size_search import ProbedCall

NAME = "layouts"
AS_IT_LIES = "smaller arguments"
"""The set that most others lay elsewhere, where it is not one that decides: who is wrong on it is wrong on numbers, not layouts."""
MISALIGNED = "misaligned"
_OUTER = "outer axes exchanged"
_MOST = 4  # arguments that are moved


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """The first argument in all layouts, the others misaligned and in one strided layout that is drawn; or none and why.

    What nobody claims to take, too: a dimension more, whose rows have no one stride once it is laid out, and one row
    that is repeated at a stride of 0. What a kernel is said to take it must take as it was recorded, and not as small
    as we like it.
    """
    builder, claims = probed_call.builder, probed_call.claims
    original = probed_call.reference_set if claims else probed_call.small
    laid_out = partial(_laid_out, builder.semantics)
    draw = random.Random(seed_of(f"{key}/{NAME}"))  # noqa: S311
    input_sets: list[InputSet] = []
    for number, index in enumerate([*_movable(original)][:_MOST]):
        strided = draw.sample(_STRIDED, len(_STRIDED)) if number else [*_STRIDED, _OUTER]
        # A vector lies elsewhere in one of the layouts alone.
        input_sets += islice(laid_out(original, index, strided), 1 if number else None)
        input_sets += laid_out(original, index, [MISALIGNED])
    if not claims and (wider := probed_call.extra_dimension) is not None:
        for index in [*_movable(wider)][:1]:
            input_sets += laid_out(wider, index, (_STRIDED[0], _OUTER), " in a dimension more")
    input_sets += _written_to(original, builder)
    if not claims:
        input_sets += _repeated(original, builder)
    if input_sets and original is not probed_call.reference_set:
        input_sets.insert(0, original.named(AS_IT_LIES, NAME))
    return input_sets, "" if input_sets else "no argument could lie elsewhere"


def _repeated(original: InputSet, builder: InputSetBuilder) -> Iterator[InputSet]:
    """The set whose first argument is one row many times, at a stride of 0, of ops that take each row by itself."""
    semantics = builder.semantics
    index = next(_movable(original), None)
    if index is None or op_word(original.call) not in ENTRIES or builder.random:
        return
    shape = original.layout.metas[index].shape
    if len(shape) < 2 or 0 not in semantics.lanes(original.call, index, shape):
        return
    tensors = original.tensors()
    tensors[index] = tensors[index][:1].clone().expand(shape)
    name = f"{semantics.names.get(index, index)} repeated"
    with suppress(Exception):  # as in _written_to
        yield builder.make(name, tensors, probe=NAME, call=original.call)


def _written_to(original: InputSet, builder: InputSetBuilder) -> Iterator[InputSet]:
    """The sets in which one argument that is changed in place has gaps between its rows."""
    for index in original.mutated[:2]:
        tensors, meta = original.tensors(), original.layout.metas[index]
        alone = sum(one.storage == meta.storage for one in original.layout.metas) == 1
        if alone and meta.numel and len(meta.shape) > 1 and tensors[index].is_contiguous():
            tensors[index] = _gaps_between_rows(tensors[index])
            name = f"{builder.semantics.names.get(index, index)} padded between rows"
            with suppress(Exception):  # an op of a user may refuse by any exception
                yield builder.make(name, tensors, probe=NAME, call=original.call)


def _laid_out(
    semantics: Semantics, original: InputSet, index: int, places: Sequence[str], suffix: str = ""
) -> Iterator[InputSet]:
    """Sets in which one argument lies elsewhere, as far as it then does."""
    for where in places:
        tensors = original.tensors()
        before = (tensors[index].stride(), tensors[index].storage_offset())
        tensors[index] = _PLACES[where](tensors[index])
        if (tensors[index].stride(), tensors[index].storage_offset()) != before:
            name = f"{semantics.names.get(index, index)} {where}{suffix}"
            yield replace(original.named(name, NAME), layout=lay_out(tensors))


def claim_of(input_set: InputSet) -> str:
    """What a kernel claims that must not refuse a set."""
    return MISALIGNED if input_set.expected.name.endswith(MISALIGNED) else "strided"


def _movable(original: InputSet) -> Iterator[int]:
    """Tensors but those that alias, overlap themselves or are changed in place: these lie as the op wants them."""
    storages = [meta.storage for meta in original.layout.metas]
    for index, meta in enumerate(original.layout.metas):
        alone = storages.count(meta.storage) == 1 and index not in original.mutated
        if alone and not meta.is_expanded and meta.shape and meta.numel:
            yield index


def _transposed(tensor: Tensor) -> Tensor:
    """A copy with its dimensions in reverse order in memory."""
    order = list(reversed(range(tensor.ndim)))
    return tensor.permute(order).contiguous().permute(order)


def _every_second(tensor: Tensor) -> Tensor:
    """Row-major with step 2, between numbers that would be noticed."""
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 1, dtype=tensor.dtype)
    return wide[..., ::2].copy_(tensor)


def _gaps_between_rows(tensor: Tensor) -> Tensor:
    """Row-major, with dense rows that are farther apart than they are long: by as much as keeps their alignment."""
    wide = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 16), 1, dtype=tensor.dtype)
    return wide[..., : tensor.shape[-1]].copy_(tensor) if tensor.ndim > 1 else tensor


def _outer_exchanged(tensor: Tensor) -> Tensor:
    """The axes before the rows exchanged in memory, as those of heads are; rows are dense."""
    return tensor.transpose(-3, -2).contiguous().transpose(-3, -2) if tensor.ndim > 2 else tensor


def _misaligned(tensor: Tensor) -> Tensor:
    """A copy with the same strides, one element behind an aligned address."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    placed = torch.zeros(span + 1, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride(), 1)
    return placed.copy_(tensor)


_STRIDED: Sequence[str] = ("transposed", "at every second element", "padded between rows")
_PLACES: Mapping[str, Callable[[Tensor], Tensor]] = {
    **dict(zip(_STRIDED, (_transposed, _every_second, _gaps_between_rows), strict=True)),
    _OUTER: _outer_exchanged,
    MISALIGNED: _misaligned,
}
