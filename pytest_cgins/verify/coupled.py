"""Arguments that belong together, drawn anew: offsets, lengths, page tables, routings, numbers in order.

An integer argument drawn by itself is no legal input, and one that stays as recorded is known by heart: sequences of one
length, pages in order, no expert without tokens. So these are drawn as what they are, as the user declares them or as
torch's own ops need them, and go to their edges: an empty sequence, one of length 1, one that ends on a page, all tokens to
one expert.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_cgins.config.coupled import Lengths, Offsets
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.recipe import seed_of, words
from pytest_cgins.verify.coupling_bounds import (
    Bound,
    adds_up,
    bounds_of,
    lengths_in,
    pages_of,
    problem_in,
    tokens_of,
)
from pytest_cgins.verify.couplings import Integers, couplings_of
from pytest_cgins.verify.semantics import Semantics

_SHOWN = 6
"""Numbers of an edge that its name lists."""
_ATTEMPTS = 6
"""How often lengths are drawn at most: pages are as many as were recorded, and not all lengths of queries fit in them."""
_SQUARE = 1 << 22
"""Tokens times experts up to which each token's experts are drawn from all of them."""


class _Lots:
    """Numbers drawn one after the other, the same on every host."""

    def __init__(self, *key: object) -> None:
        self._seed, self._drawn = seed_of(*key), 0

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Any 64 bits."""
        self._drawn += count
        return words(self._seed, count, self._drawn - count)

    def below(self, limit: int | Integers, count: int) -> Integers:
        """Integers of [0, limit), which may be another one of each."""
        limits = np.maximum(1, limit).astype(np.uint64)
        remainders: Integers = (self.words(count) % limits).astype(np.int64)
        return remainders

    def order(self, rows: int, count: int) -> Integers:
        """0 … count - 1 in another order in each row."""
        return np.argsort(self.words(rows * count).reshape(rows, count), axis=1, kind="stable")

    def fractions(self, count: int) -> npt.NDArray[np.float64]:
        """Numbers of [0, 1)."""
        upper: npt.NDArray[np.float64] = (self.words(count) >> np.uint64(11)).astype(np.float64)
        return upper * 2.0**-53


Values = tuple[Mapping[int, npt.NDArray[np.generic]], str]
"""New content by index of the tensor, and what it is like, in words."""


def edge_count(semantics: Semantics, call: OpCall, recorded: Sequence[Tensor]) -> int:
    """How many sets it takes to see the edges of all that belongs together; 0 if nothing does."""
    kinds = (coupling.kind for coupling in couplings_of(semantics, call, recorded))
    return max((_EDGES[kind] for kind in kinds), default=0)


def draw(  # noqa: PLR0917
    semantics: Semantics,
    call: OpCall,
    tensors: Sequence[Tensor],
    recorded: Sequence[Tensor],
    key: str,
    edge: int | None = None,
    *,
    legal: bool = True,
) -> str:
    """Write new numbers into the arguments that belong together, and say what they are like.

    Arguments that were recorded alike stay alike: offsets of queries and of keys are often the same. Nothing is written
    that is not legal as far as is known: an index too far ends the process of a GPU that others still need. Without an edge,
    which is below `edge_count`, numbers are usual ones. Recorded integers are not `legal` of other sizes, nor of a pack with shapes only.

    Raises:
        ConfigError: what is declared is not of this call.
        ValueError: nothing is legal in arguments of these sizes.
    """
    bounds = bounds_of(semantics, call, recorded, legal=legal)
    for attempt in range(_ATTEMPTS):
        try:
            told, contents = _drawn(bounds, f"{key}/{attempt}" if attempt else key, edge)
        except ValueError:
            if attempt < _ATTEMPTS - 1:
                continue
            if edge is None and legal:
                return ""  # what was recorded is legal
            raise
        for index, content in contents.items():
            tensor = tensors[index]
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(content)).reshape(tensor.shape))
        return told
    raise AssertionError


def _drawn(
    bounds: Sequence[Bound], key: str, edge: int | None
) -> tuple[str, dict[int, npt.NDArray[np.generic]]]:
    """What the draws are like, in words, and new content by index of the tensor.

    Raises:
        ValueError: this key leads to nothing that is legal.
    """
    told: list[str] = []
    drawn: dict[int, npt.NDArray[np.generic]] = {}
    floors: dict[str, list[Integers]] = {}
    lengths: dict[str, Integers] = {}
    named = {bound.name: bound for bound in bounds}
    for unbound in bounds:
        least = np.max([unbound.least, *floors.get(unbound.name, ())], axis=0)
        bound = replace(unbound, least=least)
        if bound.within in lengths:
            bound = replace(bound, most=np.minimum(bound.most, tokens_of(lengths[bound.within], bound.step)))
        kind = bound.coupling.kind
        number = None if edge is None else edge % _EDGES[kind]
        contents, like = _DRAWS[kind](bound, _lots(bound, key), number)
        values = np.asarray(contents[bound.index]).reshape(-1, bound.row)
        beyond = values.size and int(values.max()) > _most_of(bound.recorded.dtype)
        if problem := f"one is {int(values.max())}" if beyond else problem_in(bound, values):
            raise bound.fail(problem)
        needed = lengths[bound.name] = lengths_in(bound, values).reshape(-1)
        inner: Bound | None = bound
        while inner is not None and inner.within:
            needed = pages_of(needed, inner.step)
            floors.setdefault(inner.within, []).append(needed)
            inner = named.get(inner.within)
        drawn |= contents
        told.append(f"{bound.name} {like}")
    return ", ".join(dict.fromkeys(told)), drawn


def _most_of(dtype: torch.dtype) -> float:
    return np.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _lots(bound: Bound, key: str) -> _Lots:
    flat = bound.recorded.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    size = int(bound.totals[0]) if len(bound.totals) else bound.size
    return _Lots(key, bound.coupling.kind, size, hashlib.sha256(flat).hexdigest())


# ---- draws, by kind -----------------------------------------------------------------------------


def _divided(bound: Bound, lots: _Lots, edge: int | None) -> Values:
    """Offsets, or lengths that add up."""
    coupling, lengths = bound.coupling, _segments(bound, lots, edge)
    numbers = lengths
    if isinstance(coupling, Offsets):
        ends = np.pad(np.cumsum(lengths, axis=1), ((0, 0), (1, 0)))
        numbers = ends[:, 0 if coupling.first else 1 : None if coupling.last else -1]
    return {bound.index: numbers}, f"of lengths {_listed(lengths[0])}"


def _lengths(bound: Bound, lots: _Lots, edge: int | None) -> Values:
    if adds_up(bound.coupling):
        return _divided(bound, lots, edge)
    count, (least, most) = len(bound.most), (_shortest(bound, edge), bound.most)
    if edge is None:
        lengths = least + lots.below(most - least + 1, count)
    else:
        page, size = bound.page, bound.size
        near_pages = (page, page + 1, page - 1, 2 * page) if page > 1 else ()
        ladder = np.array([*dict.fromkeys(min(step, size) for step in (0, 1, size, *near_pages, size - 1))])
        lengths = ladder[(np.arange(count) + edge * count) % len(ladder)].clip(least, most)
    return {bound.index: lengths}, f"of {_listed(lengths)}"


def _shortest(bound: Bound, edge: int | None) -> Integers:
    """The shortest lengths of a draw: usual ones are empty only where recorded ones are."""
    usual = edge is None and bool((lengths_in(bound, bound.rows) > 0).all())
    return np.minimum(np.maximum(bound.least, 1 if usual else 0), bound.most)


def _segments(bound: Bound, lots: _Lots, edge: int | None) -> Integers:
    """Lengths that add up to the totals: no empty ones but at an edge, or as recorded; all but the last in whole steps."""
    coupling, parts = bound.coupling, len(bound.most)
    assert isinstance(coupling, Offsets | Lengths)
    step = coupling.multiple if isinstance(coupling, Offsets) else 1
    rows = []
    for total in bound.totals.tolist():
        units, rest = divmod(total, step)
        least, most = -(-_shortest(bound, edge) // step), bound.most // step
        if least.sum() > units:
            least = -(-bound.least // step)
        if not parts or not least.sum() <= units <= most.sum():
            limits = f"at least {_listed(bound.least)} and at most {_listed(bound.most)}"
            raise bound.fail(f"{parts} segments of {limits} do not add up to {total}")
        if edge == 1:  # as long as may be, in the middle, and none before and behind
            lengths = _filled(units, least, most, np.roll(np.arange(parts), -(parts // 2)))
        elif edge == 2 and (bound.least > coupling.least).any():
            # Keys: many for no query and for a single one, and for others as many as queries.
            half = most.copy()
            half[max(0, parts - 2)] = (least + (units - least.sum()) // 2)[max(0, parts - 2)]
            half = np.minimum(half, most)
            half = half if half.sum() >= units else most
            lengths = _filled(units, least, half, np.roll(np.arange(parts), 2))
        else:
            wanted = {0: {0: 0, 1: 1}, 2: {parts - 1: 1, parts - 2: 0}}.get(-1 if edge is None else edge, {})
            lengths = _composed(lots, units, least, most, wanted)
        lengths = lengths * step
        lengths[-1] += rest
        rows.append(lengths)
    return np.stack(rows)


def _filled(total: int, least: Integers, most: Integers, order: Integers) -> Integers:
    """Lengths that add up to the total, as long as may be one after the other in this order."""
    lengths: Integers = least.copy()
    room = (most - least)[order]
    lengths[order] += (total - least.sum() - (np.cumsum(room) - room)).clip(0, room)
    return lengths


def _composed(lots: _Lots, total: int, least: Integers, most: Integers, given: Mapping[int, int]) -> Integers:
    """Lengths that add up to the total; those that are given, as far as the others can take the rest."""
    lengths: Integers = least.copy()
    free = np.ones(len(least), dtype=bool)
    for place, length in given.items():
        if not 0 <= place < len(least):
            continue
        taken = min(max(length, least[place]), most[place])
        others = free & (np.arange(len(least)) != place)
        left = total - int(lengths[~free].sum()) - taken
        if int(least[others].sum()) <= left <= int(most[others].sum()):
            lengths[place], free = taken, others
    rest, count = total - int(lengths.sum()), int(free.sum())
    if count:
        cuts = np.sort(lots.below(rest + 1, count - 1))
        shares = np.diff(np.array([0, *cuts, rest]))
        spare = (most - least)[free]
        over = int((shares - spare).clip(0).sum())
        shares = np.minimum(shares, spare)
        order = lots.order(1, count)[0]
        room = (spare - shares)[order]
        shares[order] += (over - (np.cumsum(room) - room)).clip(0, room)
        lengths[free] += shares
    return lengths


def _distinct(bound: Bound, lots: _Lots, edge: int | None) -> Values:
    """Numbers of which none comes twice, as far as there are as many; negative ones stay where they are."""
    chosen = bound.rows.astype(np.int64)
    used = chosen >= 0
    whole = int(used.sum()) <= bound.size or bound.row == bound.recorded.numel()
    for row, drawn in [(chosen.reshape(-1), used.reshape(-1))] if whole else zip(chosen, used, strict=True):
        count = int(drawn.sum())
        last = np.arange(max(0, bound.size - count), bound.size)
        once = lots.order(1, bound.size)[0] if edge is None else last[:: -1 if edge else 1]
        row[drawn] = np.resize(once, count)
    like = ("that rise to", "that fall from")[edge or 0]
    return {bound.index: chosen}, "in any order" if edge is None else f"{like} {bound.size - 1}"


def _routing(bound: Bound, lots: _Lots, edge: int | None) -> Values:
    ways = bound.row if len(bound.shape) > 1 else 1
    tokens, experts = bound.recorded.numel() // ways, bound.size
    if ways > experts:
        raise bound.fail(f"{ways} different experts a token are not among {experts}")
    steps = np.arange(ways)
    if edge is None and tokens * experts <= _SQUARE:
        chosen, like = lots.order(tokens, experts)[:, :ways], "by lot"
    elif edge is None:
        chosen, like = (lots.below(experts, tokens)[:, None] + steps) % experts, "by lot"
    elif edge == 0:
        start = int(lots.below(experts, 1)[0])
        chosen, like = np.tile((start + steps) % experts, (tokens, 1)), "all alike"
    elif edge == 1:
        chosen, like = (np.arange(tokens)[:, None] * ways + steps) % experts, "in turns"
    else:
        chosen = np.tile(experts - 1 - steps, (tokens, 1))
        chosen[0] = steps
        like = "that are the last ones, but for one token"
    recorded = bound.recorded.reshape(tokens, ways).numpy().astype(np.int64)
    chosen = np.where(recorded < 0, recorded, chosen)  # tokens that go nowhere
    contents: dict[int, npt.NDArray[np.generic]] = {bound.index: chosen}
    if (counts := bound.companions.get("counts")) is not None:
        contents[counts[0]] = np.bincount(chosen[chosen >= 0], minlength=experts)
    if (weights := bound.companions.get("weights")) is not None and float(weights[1].min()) >= 0:
        shares = np.eye(ways)[lots.below(ways, tokens)] if edge == 1 else 0.05 + lots.fractions(tokens * ways)
        shares = shares.reshape(tokens, ways)
        sums = weights[1].to(torch.float64).reshape(tokens, ways).sum(1, keepdim=True).numpy()
        contents[weights[0]] = shares / shares.sum(1, keepdims=True) * sums
    return contents, like


def _sorted(bound: Bound, lots: _Lots, edge: int | None) -> Values:
    recorded = bound.recorded.to(torch.float64)
    finite = recorded[recorded.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    low, high = (0.0, bound.size - 1.0) if bound.size else (low, high)
    if not low < high:
        low, high = low - 1, low + 1
    lots_taken = lots.fractions(recorded.numel()).reshape(-1, bound.row)
    if edge is not None:
        lots_taken = np.full_like(lots_taken, 0.5) if edge else np.floor(lots_taken * 4) / 3
    values = low + (high - low) * np.sort(lots_taken, axis=1).clip(0, 1)
    if not bound.recorded.is_floating_point():
        values = np.round(values)
    like = "that are all equal" if edge else "in order" if edge is None else "in order, with equal ones"
    return {bound.index: values}, like


def _listed(numbers: Sequence[int] | Integers) -> str:
    shown = ", ".join(str(int(number)) for number in list(numbers)[:_SHOWN])
    return f"{shown}, …" if len(numbers) > _SHOWN else shown


_EDGES: Mapping[str, int] = {"offsets": 3, "lengths": 3, "pages": 2, "routing": 3, "sorted": 2, "unique": 2}
"""Kinds of edges that each kind of coupling has."""
_DRAWS: Mapping[str, Callable[[Bound, _Lots, int | None], Values]] = {
    "offsets": _divided, "lengths": _lengths, "pages": _distinct, "routing": _routing, "sorted": _sorted, "unique": _distinct,
}  # fmt: skip
