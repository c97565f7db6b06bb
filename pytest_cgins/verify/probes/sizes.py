"""Probe `sizes`: the same op on other sizes: one more, on which tails of tiles show, none, and others that the seed draws.

Drawn sizes differ from run to run, so that no kernel is right for those that are tried and for no others. Sizes move
all at once: all odd, which leaves a rest of every vector; few, round or many within rows, each in a set of its own. Some move alone
(`related_sizes`): what was equal, whole or repeated in what was recorded need not be. The largest numbers lie in what vectors leave.

Dimensions and integer arguments of one size move together, and torch decides which moves are legal by running them.
A kernel may refuse a size with an error; what it answers must be right. An empty batch is a size as well, and no
refusal is what a launch of no blocks, or a division by the number of rows, ends with.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import torch

from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.packs.modules import is_module_call
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify import related_sizes
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.semantics import ENTRIES, op_word
from pytest_cgins.verify.size_groups import LEAST, STEPS, Moves, Places, Spot, prime_above, prime_below
from pytest_cgins.verify.size_search import (
    ATTEMPTS,
    FEW_ROWS,
    LIMIT_BYTES,
    MANY_BYTES,
    NAME,
    ProbedCall,
    SizeSearch,
)  # fmt: skip

__all__ = ["NAME", "sets"]
FEW = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
"""Sizes of what is not within rows, where these are what counts."""
LARGE = range(2049, 3100)
"""More than twice the threads of a block: what the third piece of a row needs of the first is there, too."""
MANY_ELEMENTS = 68_000
"""The set of many rows has more elements than 16 bits count, unless its arguments would be larger than `MANY_BYTES`."""
MOST_ROWS = 2048
"""Most rows of a set, since some kernels are Python, row by row."""
_TILE, _TILES = 1024, (16, 20)  # of a row: divisors of the tile divide it as well
_TILES_OF_SCORES = (2, 3)  # there are as many rows, often
_BEYOND_16_BITS = (3 << 16) + _TILE
_FIND_ONE = frozenset({"argmax", "argmin", "max", "min"})
_WALK_ROWS = frozenset({"cummax", "cummin", "cumsum", "logcumsumexp", "logsumexp", "std", "var"})
"""Others that take a row's elements one after the other, and in pieces."""


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """Sets of other sizes, or none and why.

    One size more, single ones, four of drawn sizes, long rows, many rows, what is left, none, one and two dimensions more, and those in
    which single dimensions move; fewer where torch refuses them.
    """
    search = probed_call.search if key == probed_call.key else SizeSearch(probed_call, key)
    interpreted = probed_call.interpreted
    places = search.places
    if places.are_tied:
        return [], "the op changes an argument that shares its memory with another"
    if not places.sizes and not places.batches:
        own = ", and those of a module's state belong to it" if is_module_call(search.call) else ""
        return [], f"no argument has a size that may change{own}"
    found: list[InputSet] = []

    def take(input_set: InputSet | None) -> None:
        if input_set is not None and all(input_set.expected.name != other.expected.name for other in found):
            found.append(input_set)

    small = search.small
    take(_one_more(search))
    for size in places.others:  # a single token, or head: what is repeated along it need not be
        take(search.first_legal([{**small, size: 1}]))
    draw = random.Random(seed_of(f"{key}/{NAME}"))  # noqa: S311
    for moves, main in _drawn(places, draw, few=interpreted):
        fitted = search.fitted(moves, main)
        # Where torch refuses to move all of them at once.
        alone = search.fitted({**small, main: moves[main]}, main)
        beside = {**fitted, main: small.get(main, main)}
        take(search.first_legal([fitted, alone, beside]))
    if places.inner and not interpreted:
        take(_long(search, places.inner[0], draw))
        take(related_sizes.long_scan(search, draw))
    take(_large_batch(search, FEW_ROWS if interpreted else MOST_ROWS))
    take(_remaining_dimensions(search, found))
    take(_empty(search))
    for input_set in (
        search.extra_dimension,
        search.extra_dimensions(2),
        *related_sizes.many_numbered(search),
        *related_sizes.broadcast_operands(search),
        *related_sizes.split_equal_sizes(search),
        *related_sizes.short_blocks(search),
        related_sizes.longer_lists(search),
    ):
        take(input_set)
    return found, "" if found else f"torch refuses every other size that was tried ({search.refusal})"


def _drawn(places: Places, draw: random.Random, *, few: bool) -> Iterator[tuple[Moves, int]]:
    """Moves of all sizes, and which of these is the one within rows, or the largest where there is none; those that take long unless `few`."""
    sizes = [*places.inner, *places.others]
    if not sizes:
        return
    main, others = sizes[0], sizes[1:]
    yield {n: draw.randint(n // 4 + 1, n) * 2 + 1 for n in sizes}, main
    if others:
        yield {main: draw.choice((2, 3)), **{n: draw.choice(FEW) for n in others}}, main
    if not few:
        yield {main: 64 * draw.randint(1, 12), **{n: 2 ** draw.randint(2, 5) for n in others}}, main
        batches = [places.metas[batch[0]].shape[0] for batch in places.batches]
        rows = {n: 1 for n in batches[:1] if n in others}
        yield {main: draw.choice(LARGE), **{n: draw.choice(FEW) for n in others}, **rows}, main


def _one_more(search: SizeSearch) -> InputSet | None:
    """The set with rows of one element more, or of as many as torch takes: whole blocks are even in number, often."""
    for size, step in itertools.product(search.places.inner, STEPS):
        moves = {**search.small, size: search.small.get(size, size) + step}
        is_worth = step == 1 or any(map(search.is_legal, search.followed(moves)))
        input_set = search.first_legal([moves]) if is_worth else None
        if input_set is not None:
            return input_set
    return search.first_legal([{**search.small, n: search.small.get(n, n) + 1} for n in search.places.others])


def _empty(search: SizeSearch) -> InputSet | None:
    """The set without rows, if torch takes it and its answer is beyond doubt."""
    for batch in search.places.batches:
        input_set = None if search.places.is_pointed_into(batch) else _of_batch(search, batch, 0)
        if input_set is not None:
            return None if _is_doubtful(input_set) else input_set
    return None


def _large_batch(search: SizeSearch, limit: int) -> InputSet | None:
    """The set with as many rows as memory and a limit allow, or at least with more than a few.

    Threads and blocks that share what they must not meet there, and what sums lose by each rounding adds up.
    """
    for batch in search.places.batches:
        size = search.places.metas[batch[0]].shape[0]
        new = 0 if search.places.is_offset(size) else _most_rows(search, batch, size, limit)
        input_set = _of_batch(search, batch, new) if new else None
        if input_set is not None:
            return input_set
    return None


def _long(search: SizeSearch, main: int, draw: random.Random) -> InputSet | None:
    """The set of few rows that whole tiles fill, longer than a buffer for a row; more than 16 bits count, for a position."""
    name = op_word(search.call)
    finds_one = name in _FIND_ONE
    # Others may take as much as the square of the row, random ones are run many times.
    known = name in _WALK_ROWS or (name in ENTRIES and (finds_one or not search.semantics.chooses))
    numels = [sum(meta.numel for meta in metas) for metas in (search.given, search.places.metas)]
    if not known or search.is_random or numels[0] > 2 * numels[1]:
        return None
    others = {n: draw.choice((2, 3)) for n in search.places.others}
    widths = [_TILE * draw.randint(*_TILES)]
    if name == "scaled_dot_product_attention":
        # Its rows are a query's scores, one for each key: a plain kernel may take a head's width squared for each.
        given = {argument.name: argument.value.value for argument in search.call.arguments}
        keys = search.places.metas[int(given.get("key") or 0)].shape[-2]
        others = {**dict.fromkeys(others, 1), main: draw.choice((2, 3))}
        main, widths = keys, [_TILE * draw.randint(*_TILES_OF_SCORES)] if keys != main else []
    plan = [{**others, main: width} for width in widths]
    if finds_one:  # the more rows there are, the seldomer all of their extremes lie before
        beyond = [{**dict.fromkeys(others, rows), main: _BEYOND_16_BITS} for rows in (3, 2)]
        plan = [*beyond, *plan]
    return search.first_legal_long([moves for moves in plan if search.nbytes(moves) <= MANY_BYTES])


def _remaining_dimensions(search: SizeSearch, other_sets: Sequence[InputSet]) -> InputSet | None:
    """The set that changes the dimensions that no other set changed, as far as torch takes it; None if there are none.

    These are mostly windows, groups and dimensions of 1. Sizes that torch refuses to change alone are doubled together, as
    numbers of heads that share others are.
    """
    spots = {*search.places.spots}.difference(*(_moved(search, each) for each in other_sets))
    there = {search.places.metas[index].shape[dim] for index, dim in spots}
    left = sorted((size for size in search.places.sizes if size in there), reverse=True)
    moves, overlay, input_set = search.small, dict[Spot, int](), None

    def move(more: Moves) -> None:
        nonlocal moves, input_set
        candidate = search.taken({**moves, **more})
        if candidate is not None:
            moves, input_set = {**moves, **more}, candidate

    for size in left[:ATTEMPTS]:
        move({size: prime_above(moves.get(size, size))})
    now = {size: (moves.get(size, size), search.small.get(size, size)) for size in left}
    stuck = {size: 2 * new for size, (new, small) in now.items() if new == small}
    if len(stuck) > 1:
        move(stuck)
    for choices in search.places.ones():
        for choice in choices if not spots.isdisjoint(choices[0]) else ():
            wider = {**overlay, **dict.fromkeys(choice, 2)}
            candidate = search.taken(moves, wider) or search.taken(search.small, wider)
            if candidate is not None:
                overlay, input_set = wider, candidate
                break
    return input_set


def _of_batch(search: SizeSearch, batch: Sequence[int], new: int) -> InputSet | None:
    """The set with another first dimension of some tensors."""
    size = search.places.metas[batch[0]].shape[0]
    return search.taken(search.small, {(index, 0): new for index in batch}, batch={size: new})


def _most_rows(search: SizeSearch, batch: Sequence[int], size: int, limit: int) -> int:
    """How many rows fit; 0 if that is hardly more than there are, and those are not few."""
    metas, given = [search.places.metas[index] for index in batch], search.given
    rows = [math.prod(search.places.shape(index, search.small)[1:]) for index in batch]
    # Outputs are counted as well: an embedding's are hundreds of times as large as its indices.
    a_row = sum(numel * ITEMSIZE[meta.dtype] for numel, meta in zip(rows, metas, strict=True)) * (
        1 + sum(one.nbytes for one in given) / max(1, sum(one.nbytes for one in metas))
    )
    most_of = max((one.numel for one in given), default=0) / max(1, *(one.numel for one in metas))
    enough = math.ceil(MANY_ELEMENTS / max(1.0, max(rows) * max(1.0, most_of)))
    most = int(LIMIT_BYTES / max(1.0, a_row))
    most = min(limit, max(most, enough) if enough * a_row <= MANY_BYTES else most)
    if most >= 2 * size:
        return prime_below(most)
    return prime_above(size) if size < LEAST else 0


def _moved(search: SizeSearch, input_set: InputSet) -> Iterator[Spot]:
    """What is of another size in a set than it would be of, were all as small as it must be."""
    for index, meta in enumerate(input_set.layout.metas):
        shape = search.places.shape(index, search.small)
        if meta.shape and meta.shape[0] == 0 != shape[0]:
            continue
        yield from ((index, dim) for dim, size in enumerate(shape) if meta.shape[dim] != size)


def _is_doubtful(input_set: InputSet) -> bool:
    """Whether torch makes NaN of nothing, as a mean does, or a state that nothing came to could also be NaN."""
    answers = [output.answer for output in input_set.expected.outputs]
    nan = any(bool(torch.isnan(tensor).any()) for tensor in answers if tensor.is_floating_point())
    return nan or any(tensor.numel() for tensor in answers[len(input_set.outputs) :])
