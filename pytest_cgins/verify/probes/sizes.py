"""Probe `sizes`: the same op on other sizes: one more, on which tails of tiles show, none, and others that the seed draws.

Drawn sizes differ from run to run, so that no kernel is right for those that are tried and for no others. Sizes move
all at once: all odd, which leaves a rest of every vector; few, round or many within rows, each in a set of its own. Some move alone
(`related_sizes`): what was equal, whole or repeated in what was recorded need not be. The largest numbers lie in what vectors leave.

Dimensions and integer arguments of one size move together, and torch decides which moves are legal by running them.
A kernel may refuse a size with an error; what it answers must be right. An empty batch is a size as well, and no
refusal is what a launch of no blocks, or a division by the number of rows, ends with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from pytest_cgins.packs.modules import is_module_call
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify import related_sizes
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.size_groups import Moves, Places
from pytest_cgins.verify.size_search import FEW_ROWS, MOST_ROWS, NAME, ProbedCall, SizeSearch

__all__ = ["NAME", "sets"]
FEW = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
"""Sizes of what is not within rows, where these are what counts."""
LARGE = range(2049, 3100)
"""More than twice the threads of a block: what the third piece of a row needs of the first is there, too."""


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """Sets of other sizes, or none and why.

    One size more, four of drawn sizes, long rows, many rows, what is left, none, one and two dimensions more, and those in
    which single dimensions move; fewer where torch refuses them.
    """
    search, interpreted = SizeSearch(probed_call, key), probed_call.interpreted
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
    take(search.one_more())
    draw = random.Random(seed_of(f"{key}/{NAME}"))  # noqa: S311
    for moves, main in _drawn(places, draw, few=interpreted):
        fitted = search.fitted(moves, main)
        # Where torch refuses to move all of them at once.
        alone = search.fitted({**small, main: moves[main]}, main)
        beside = {**fitted, main: small.get(main, main)}
        take(search.first_legal([fitted, alone, beside]))
    if places.inner and not interpreted:
        take(search.long(places.inner[0], draw))
        take(related_sizes.long_scan(search, draw))
    take(search.large_batch(FEW_ROWS if interpreted else MOST_ROWS))
    take(search.remaining_dimensions(found))
    take(search.empty())
    for input_set in (
        search.extra_dimension(),
        search.extra_dimension(2),
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
