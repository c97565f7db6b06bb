"""Sizes that hang together otherwise than by being equal: apart, in blocks, repeated by broadcasting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from pytest_cgins.config.coupled import Lengths, Offsets
from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.call import with_value
from pytest_cgins.verify.input_sets import REFUSALS, InputSet
from pytest_cgins.verify.semantics import op_word
from pytest_cgins.verify.size_groups import BLOCKS, PACKED, Spot, prime_above, resized
from pytest_cgins.verify.size_search import MANY_BYTES, SizeSearch

_APART = 4  # sets in which one of several equal sizes moves
_OF_MORE = frozenset({"where", "lerp", "addcmul", "addcdiv", "masked_fill"})
"""Elementwise ops of torch beside those of two operands."""


# ---- equal sizes


def split_equal_sizes(search: SizeSearch) -> Iterator[InputSet]:
    """Sets in which some dimensions of one size move and the others stay: equal ones may mean different things.

    What torch refuses of the first argument is tried with a switch of the call on, and twice the size: more heads of queries
    than of keys. Of an op of a user only sizes move of which different offsets are said to speak.
    """
    if not search.is_torchs_own:
        made = (_moved_alone(search, search.call, [spot], new) for spot, new in _declared_apart(search))
        yield from itertools.islice((each for each in made if each is not None), 1)
        return
    count = 0
    for size in search.places.sizes:
        now = search.small.get(size, size)
        for choice in _choices(search, size):
            input_set = _moved_alone(search, search.call, choice, prime_above(now))
            of_first = input_set is None and len(choice) == 1 and not choice[0][0]
            for call in _switched_on(search.call) if of_first else ():
                input_set = input_set or _moved_alone(search, call, choice, 2 * now)
            if input_set is not None:
                yield input_set
                count += 1
            if count == _APART:
                return


def _declared_apart(search: SizeSearch) -> Iterator[tuple[Spot, int]]:
    """Dimensions of one size that offsets or lengths in different arguments have, and others for them: queries may be fewer than keys."""
    indices = {name: index for index, name in search.semantics.names.items()}
    said = (one for one in search.semantics.declared.coupled if isinstance(one, Offsets | Lengths))
    dims = [one.size[0] for one in said if len(one.size) == 1]
    named = [(indices[name], dim) for name, dim in dims if dim is not None and name in indices]
    sizes = [search.places.metas[index].shape[dim] for index, dim in named]
    for spot, size in zip(named, sizes, strict=True):
        if sizes.count(size) > 1:
            now = search.small.get(size, size)
            yield from ((spot, new) for new in (now // 2 | 1, prime_above(now)))


def _choices(search: SizeSearch, size: int) -> list[tuple[Spot, ...]]:
    """Some of the dimensions of a size: those at one place from the last, all but the first of these, and each alone."""
    spots = [
        spot for spot in sorted(search.places.spots()) if search.places.metas[spot[0]].shape[spot[1]] == size
    ]
    places: dict[int, list[Spot]] = {}
    for index, dim in spots:
        places.setdefault(len(search.places.metas[index].shape) - dim, []).append((index, dim))
    choices = [tuple(place) for place in places.values()]
    choices += [choice[1:] for choice in choices if len(choice) > 2]
    choices += [(spot,) for spot in spots]
    return [choice for choice in dict.fromkeys(choices) if len(choice) < len(spots)]


def _moved_alone(search: SizeSearch, call: OpCall, choice: Sequence[Spot], new: int) -> InputSet | None:
    shapes = search.shapes(search.small, dict.fromkeys(choice, new))
    return search.taken(shapes, search.small, [search.places.call(call, search.small)], alone=True)


def _switched_on(call: OpCall) -> Iterator[OpCall]:
    """The call with one of its switches on that are off."""
    for argument in call.arguments:
        if argument.value.kind == "bool" and not argument.value.value:
            on = with_value(argument, replace(argument.value, value=True))
            yield replace(call, arguments=tuple(on if one is argument else one for one in call.arguments))


# ---- blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """A size in two whole blocks and a short one."""

    new: int
    """The size."""
    scales: Sequence[Spot]
    """Dimensions with a number for each block."""
    packed: Mapping[Spot, int]
    """Dimensions of which an element holds several of its numbers."""


def short_blocks(search: SizeSearch) -> Iterator[InputSet]:
    """Sets of two whole blocks and a short one along a size of which another argument has a number for each block.

    How long a block is says torch: it takes the call, reads the last block's number, and refuses fewer.
    """
    for size in search.places.sizes:
        tried = (_in_blocks(search, size, blocks) for blocks in _blocks_of(search, size))
        yield from itertools.islice((each for each in tried if each is not None), 1)


def _blocks_of(search: SizeSearch, size: int) -> Iterator[_Blocks]:
    metas = search.places.metas
    count = {(index, dim): metas[index].shape[dim] for index, dim in sorted(search.places.spots())}
    spots = [spot for spot in count if 0 < count[spot] < size]
    dims = [{dim} for dim in sorted({dim for _, dim in spots})]
    divisors = {size // count[spot] for spot in spots if size % count[spot] == 0}
    blocks = sorted(divisors.union(BLOCKS))
    for block, among in itertools.product(blocks, [*dims, set[int]().union(*dims)]):
        scales = [spot for spot in spots if spot[1] in among and count[spot] == -(-size // block)]
        if not scales or not min(BLOCKS) <= block < 2 * size:
            continue
        for rest, times in itertools.product((block // 2 + 1, block // 2), (1, *PACKED)):
            new = 2 * block + rest
            packed = [spot for spot in spots if count[spot] * times == size] if times > 1 else []
            fits = new % times == 0 and search.nbytes({**search.small, size: new}) <= MANY_BYTES
            if fits and bool(packed) == (times > 1):
                yield _Blocks(new=new, scales=scales, packed=dict.fromkeys(packed, new // times))


def _in_blocks(search: SizeSearch, size: int, blocks: _Blocks) -> InputSet | None:
    moves = {**search.small, size: blocks.new}

    def of(count: int) -> InputSet | None:
        held = {**blocks.packed, **dict.fromkeys(blocks.scales, count)}
        return search.taken(search.shapes(moves, held), moves)

    made = of(3)
    if made is None or of(2) is not None:
        return None
    tensors = made.tensors()
    for index, dim in blocks.scales:
        first, last = (tensors[index].narrow(dim, block, 1) for block in (0, 2))
        if last.is_floating_point():
            last.copy_(first)
        else:  # zero points beyond the recorded ones repeat the first: a copy would change nothing
            last.bitwise_xor_(1)
    before = search.answer(made, made.tensors())
    return None if all_same(before, search.answer(made, tensors)) else made


# ---- broadcasting


def broadcast_operands(search: SizeSearch) -> list[InputSet]:
    """Sets in which an operand of an elementwise op of torch's is repeated along another dimension."""
    facts, metas = search.semantics.facts, search.places.metas
    word = op_word(search.call)
    if not search.is_torchs_own or not (word in _OF_MORE or (facts is not None and facts.sort == "binary")):
        return []
    found: list[InputSet] = []
    call, broadcast = search.places.call(search.call, search.small), np.broadcast_shapes
    changed = search.semantics.mutated(search.call)
    tensors = resized(search.recorded, metas, search.shapes(search.small), search.small, search.semantics)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    whole = broadcast(*shapes)
    for index, dim in itertools.product(range(0 if word == "where" else 1, len(tensors)), range(len(whole))):
        shape = (*whole[:dim], 1, *whole[dim + 1 :])
        others = broadcast(shape, *shapes[:index], *shapes[index + 1 :])
        is_other = (
            others == whole and (*[1] * (len(whole) - len(shapes[index])), *shapes[index]) != shape != whole
        )
        if is_other and len(whole) > 1 and index not in changed and tensors[index].numel():
            numbers = torch.arange(math.prod(shape)).reshape(shape) % tensors[index].numel()
            operand = tensors[index].reshape(-1)[numbers]
            with suppress(*REFUSALS):
                found.append(
                    search.drawn(call, [*tensors[:index], operand, *tensors[index + 1 :]], "broadcast")
                )
    return found
