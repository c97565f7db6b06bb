"""Sizes that hang together otherwise than by being equal: apart, in blocks, repeated by broadcasting."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import process_time

import numpy as np
import torch

from pytest_cgins.config.coupled import Coupling, Lengths, Offsets, Pages, Routing, Unique
from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import with_value
from pytest_cgins.verify import inputs
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.op_calls import is_causal
from pytest_cgins.verify.semantics import op_word
from pytest_cgins.verify.size_groups import BLOCKS, LEAST, PACKED, Moves, Spot, prime_above
from pytest_cgins.verify.size_search import LIMIT_BYTES, MANY_BYTES, SizeSearch

_APART = 4  # sets in which one of several equal sizes moves
_WINDOW = 2  # the first dimension of a weight that may be a window's
_MANY = 331
"""More pages, slots and experts than a byte counts."""
_PIECE = 2048
"""Elements that are often scanned at once."""
_PIECES = ((2, 0.02), (1, 0.1))
"""More than so many pieces, if torch takes no longer than so many seconds for them."""
_LISTED = 36
"""Tensors in a list: more than four, eight and 32."""
_OF_MORE = frozenset({"where", "lerp", "addcmul", "addcdiv", "masked_fill"})
"""Elementwise ops of torch beside those of two operands."""


# ---- equal sizes


def split_equal_sizes(search: SizeSearch) -> Iterator[InputSet]:
    """Sets in which some dimensions of one size move and the others stay: equal ones may mean different things."""
    if not search.is_torchs_own:
        made = (_moved_alone(search, search.call, [spot], new) for spot, new in _declared_apart(search))
        yield from itertools.islice(filter(None, made), 1)
    split = _split if search.is_torchs_own else _split_of_users
    yield from itertools.islice(split(search), _APART)


def _split(search: SizeSearch) -> Iterator[InputSet]:
    """Of torch's own ops: what is refused of the first argument is tried with a switch of the call on, and twice the size.

    Heads of queries may be more than those of keys.
    """
    for size in search.places.sizes:
        now = search.small.get(size, size)
        for choice in _choices(search, size):
            tried = [(search.call, prime_above(now))]
            if len(choice) == 1 and not choice[0][0]:
                tried += [(call, 2 * now) for call in _switched_on(search.call)]
            made = (_moved_alone(search, call, choice, new) for call, new in tried)
            yield from itertools.islice(filter(None, made), 1)


def _split_of_users(search: SizeSearch) -> Iterator[InputSet]:
    """Of other ops, which may take more than they are meant for: nothing of a window's size, nor where positions decide what is seen.

    A tensor that was passed twice is one.
    """
    begins = [(meta.storage, meta.offset) for meta in search.places.metas]
    if is_derived(search.call.op) or len(set(begins)) < len(begins):
        return
    if is_causal(search.call, lay_out(search.recorded, copy=False), search.context):
        return
    for size in (size for size in search.places.sizes if size >= LEAST):
        new = prime_above(search.small.get(size, size))
        for choice in _choices(search, size):
            roles = {search.semantics.role(index, search.places.metas[index]) for index, _ in choice}
            if roles == {"weight"} and all(dim >= _WINDOW for _, dim in choice):
                continue  # the filters of a convolution
            input_set = _moved_alone(search, search.call, choice, new)
            if input_set is not None and _is_meant(search, input_set, choice):
                yield input_set


def _is_meant(search: SizeSearch, input_set: InputSet, choice: Sequence[Spot]) -> bool:
    """Whether an op reads what moved dimensions have more, in each argument, and takes half of them: else it cuts off what is more."""
    sizes = [search.places.shape(index, search.small)[dim] for index, dim in choice]
    less = {spot: size // 2 for spot, size in zip(choice, sizes, strict=True)}
    with suppress(Exception):  # an op of a user may refuse by any exception
        before = input_set.answer(input_set.tensors())
        for (index, dim), old in zip(choice, sizes, strict=True):
            tensors = input_set.tensors()
            tensors[index] = tensors[index].contiguous()  # an expanded one cannot be written to
            more = tensors[index].narrow(dim, old, tensors[index].shape[dim] - old)
            more.copy_(tensors[index].narrow(dim, 1, more.shape[dim]).clone())
            if all_same(before, input_set.answer(tensors)):
                return False
        return search.is_legal(search.small, less)
    return False


def _declared_apart(search: SizeSearch) -> Iterator[tuple[Spot, int]]:
    """Dimensions of one size that offsets or lengths in different arguments have, and others for them: queries may be fewer than keys."""
    said = [one for one in search.semantics.declared.coupled if isinstance(one, Offsets | Lengths)]
    spots = {_spot(search, one): one for one in said if len(one.size) == 1}
    named = {spot: search.places.metas[spot[0]].shape[spot[1]] for spot in spots if spot is not None}
    for spot, size in named.items():
        if [*named.values()].count(size) > 1:
            now = search.small.get(size, size)
            yield from ((spot, new) for new in (now // 2 | 1, prime_above(now)))


def _spot(search: SizeSearch, coupling: Coupling) -> Spot | None:
    """The dimension that a coupling is about; None if it is none of an argument."""
    indices = {name: index for index, name in search.semantics.names.items()}
    name, dim = coupling.size[0] if coupling.size else ("", None)
    return (indices[name], dim) if dim is not None and name in indices else None


def _choices(search: SizeSearch, size: int) -> list[tuple[Spot, ...]]:
    """Some of the dimensions of a size: those at one place from the last, all but the first of these, and each alone."""
    metas = search.places.metas
    spots = [(index, dim) for index, dim in search.places.spots if metas[index].shape[dim] == size]
    places: dict[int, list[Spot]] = {}
    for index, dim in spots:
        places.setdefault(len(metas[index].shape) - dim, []).append((index, dim))
    choices = [tuple(place) for place in places.values()]
    choices += [choice[1:] for choice in choices if len(choice) > 2]
    choices += [(spot,) for spot in spots]
    return [choice for choice in dict.fromkeys(choices) if len(choice) < len(spots)]


def _moved_alone(search: SizeSearch, call: OpCall, choice: Sequence[Spot], new: int) -> InputSet | None:
    calls = [search.places.call(call, search.small)]
    return search.taken(search.small, dict.fromkeys(choice, new), calls=calls, alone=True)


def _switched_on(call: OpCall) -> Iterator[OpCall]:
    """The call with one of its switches on that are off."""
    for argument in call.arguments:
        if argument.value.kind == "bool" and not argument.value.value:
            on = with_value(argument, replace(argument.value, value=True))
            yield replace(call, arguments=tuple(on if one is argument else one for one in call.arguments))


# ---- numbers of a byte


def many_numbered(search: SizeSearch) -> Iterator[InputSet]:
    """Sets with more pages, slots and experts than a byte counts, where it is said that integers number them.

    Integers of a byte number as many as it counts, as offsets and lengths do.
    """
    for coupling in couplings_of(search.semantics, search.call, search.recorded):
        spot, names = _spot(search, coupling), search.semantics.names
        numbers = next((search.recorded[n] for n in names if names[n] == coupling.argument), None)
        if spot is None or numbers is None:
            continue
        if isinstance(coupling, Pages | Routing | Unique) or numbers.dtype.itemsize == 1:
            most = 0 if numbers.is_floating_point() else torch.iinfo(numbers.dtype).max
            moves = {**search.small, search.places.metas[spot[0]].shape[spot[1]]: min(_MANY, most)}
            input_set = search.taken(moves) if search.nbytes(moves) <= MANY_BYTES else None
            if input_set is not None:
                yield input_set


# ---- scans


def long_scan(search: SizeSearch, draw: random.Random) -> InputSet | None:
    """The set of a user's op that is long where something is carried on: as many pieces of 2,048 as take no long time."""
    if search.is_torchs_own or is_derived(search.call.op):
        return None
    for size in _scanned(search):
        others = {n: draw.choice((2, 3)) for n in (*search.places.inner, *search.places.others) if n != size}
        for pieces, seconds in _PIECES:
            moves = {**others, size: _PIECE * pieces + draw.randint(1, _PIECE // 4)}
            begun = process_time()
            if search.is_legal(moves) and process_time() - begun < seconds:
                return search.first_legal_long([moves])
    return None


def _scanned(search: SizeSearch) -> Iterator[int]:
    """Sizes along which the first numbers count for the second, and the last ones not for the first: how far may vanish."""
    for index, tensor in inputs.data(search.semantics, search.recorded)[:1]:
        for dim in (dim for dim, size in enumerate(tensor.shape) if LEAST <= size in search.places.sizes):
            with suppress(Exception):  # an op of a user may refuse by any exception
                ends = []
                for place in (None, 0, -1):
                    tensors = search.recorded_in(search.small)
                    if place is not None:
                        tensors[index].select(dim, place).add_(1)
                    answered = search.answer_to(tensors, search.small)[0]
                    ends.append([answered.select(dim, end) for end in (0, 1)])
                whole, first, last = ends
                if all_same([whole[0]], [last[0]]) and not all_same([whole[1]], [first[1]]):
                    yield tensor.shape[dim]


# ---- blocks


def short_blocks(search: SizeSearch) -> Iterator[InputSet]:
    """Sets of two whole blocks and a short one along a size of which another argument has a number for each block.

    How long a block is says torch: it takes the call, reads the last block's number, and refuses fewer.
    """
    for size in search.places.sizes:
        tried = (_in_blocks(search, *blocks) for blocks in _blocks_of(search, size))
        yield from itertools.islice(filter(None, tried), 1)


def _blocks_of(search: SizeSearch, size: int) -> Iterator[tuple[Moves, Sequence[Spot], Mapping[Spot, int]]]:
    """Moves of a size to two blocks and a rest, dimensions with a number for each, and those of which an element holds several."""
    metas = search.places.metas
    count = {(index, dim): metas[index].shape[dim] for index, dim in search.places.spots}
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
            moves = {**search.small, size: new}
            fits = new % times == 0 and search.nbytes(moves) <= MANY_BYTES
            if fits and bool(packed) == (times > 1):
                yield moves, scales, dict.fromkeys(packed, new // times)


def _in_blocks(
    search: SizeSearch, moves: Moves, scales: Sequence[Spot], packed: Mapping[Spot, int]
) -> InputSet | None:
    # Most ops take any number of what are no scales: that is asked first, since a set costs many times as much.
    takes_fewer = search.is_legal(moves, {**packed, **dict.fromkeys(scales, 2)})
    made = None if takes_fewer else search.taken(moves, {**packed, **dict.fromkeys(scales, 3)})
    if made is None:
        return None
    tensors = made.tensors()
    for index, dim in scales:
        tensors[index] = tensors[index].contiguous()  # as in _is_meant
        first, last = (tensors[index].narrow(dim, block, 1) for block in (0, 2))
        if last.is_floating_point():
            last.copy_(first)
        else:  # zero points beyond the recorded ones repeat the first: a copy would change nothing
            last.bitwise_xor_(1)
    with suppress(Exception):  # as in _is_meant
        return None if all_same(made.answer(made.tensors()), made.answer(tensors)) else made
    return None


# ---- lists


def longer_lists(search: SizeSearch) -> InputSet | None:
    """The set with more tensors in each list of them, if the op takes any number: a launch may have room for those recorded."""
    sources, arguments = [*range(len(search.recorded))], []
    for argument in search.call.arguments:
        value, fixed = argument.value, (argument.name, None) in search.semantics.fixed
        if value.items and not fixed and all(item.kind == "tensor" for item in value.items):
            more = range(len(value.items), _LISTED + len(value.items) % 2)
            added = [value.items[number % len(value.items)] for number in more]
            items = [replace(item, value=len(sources) + number) for number, item in enumerate(added)]
            sources += [int(item.value or 0) for item in added]
            argument = with_value(argument, replace(value, items=(*value.items, *items)))  # noqa: PLW2901
        arguments.append(argument)
    if len(sources) == len(search.recorded) or search.mutated:
        return None
    small = search.shrunk(min(LIMIT_BYTES, MANY_BYTES * len(search.recorded) // len(sources)))
    call = search.places.call(replace(search.call, arguments=tuple(arguments)), small)
    tensors = search.recorded_in(small)
    tensors += [tensors[source].clone() for source in sources[len(tensors) :]]
    if sum(tensor.nbytes for tensor in tensors) > MANY_BYTES:
        return None
    with suppress(Exception):  # an op of a user may refuse by any exception
        return search.drawn(
            call, tensors, "longer", name=f"sizes of lists, {counted(len(tensors), 'tensor')}"
        )
    return None


# ---- broadcasting


def broadcast_operands(search: SizeSearch) -> list[InputSet]:
    """Sets in which an operand of an elementwise op of torch's is repeated along another dimension."""
    facts, word = search.semantics.facts, op_word(search.call)
    if not search.is_torchs_own or not (word in _OF_MORE or (facts is not None and facts.sort == "binary")):
        return []
    found: list[InputSet] = []
    call, broadcast = search.places.call(search.call, search.small), np.broadcast_shapes
    changed = search.semantics.mutated(search.call)
    tensors = search.recorded_in(search.small)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    whole = broadcast(*shapes)
    for index, dim in itertools.product(range(0 if word == "where" else 1, len(tensors)), range(len(whole))):
        shape = (*whole[:dim], 1, *whole[dim + 1 :])
        is_other = (*[1] * (len(whole) - len(shapes[index])), *shapes[index]) != shape != whole
        is_other &= broadcast(shape, *shapes[:index], *shapes[index + 1 :]) == whole
        if is_other and len(whole) > 1 and index not in changed and tensors[index].numel():
            numbers = torch.arange(math.prod(shape)).reshape(shape) % tensors[index].numel()
            operand = tensors[index].reshape(-1)[numbers]
            others = [*tensors[:index], operand, *tensors[index + 1 :]]
            with suppress(Exception):  # as in longer_lists
                found.append(search.drawn(call, others, "broadcast"))
    return found
