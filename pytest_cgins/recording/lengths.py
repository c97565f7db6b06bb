"""Sizes that change from call to call: generation makes one signature a key-value length.

Calls that are equal but for one size, which has the same value in all places where it stands, are one
family. A few of its sizes are kept: the others would add traces and no insight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from pytest_cgins.core.trace import Context, OpCall, TensorMeta, Value

LEAST_SIZES = 4
"""Distinct sizes from which on they are taken for one that changes."""
ALIGNED = 8
"""Sizes that are multiples of it take a kernel's vectorized path; others its remainder."""


class Form(NamedTuple):
    """A call taken apart into what must be equal and what may change."""

    fixed: Hashable
    """Op, structure, dtypes, plain values, context, how strides follow from sizes; parameters' shapes."""
    sizes: tuple[int, ...]
    """Sizes of the other tensors, and the int arguments."""
    places: tuple[tuple[int, int] | None, ...]
    """Where each size stands: (tensor, dimension); None for an int argument."""


class Family(NamedTuple):
    """Calls that one size tells apart."""

    places: tuple[int, ...]
    """Indices of the size among `Form.sizes`."""
    rest: tuple[int, ...]
    """All other sizes, in order."""
    members: tuple[int, ...]
    """Indices of the forms, by ascending size."""
    sizes: tuple[int, ...]
    """The size in each member."""


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""Places and rest of a family."""


def form_of(call: OpCall, metas: Sequence[TensorMeta], context: Context, parameters: Collection[int]) -> Form:
    """The form of a call; `parameters` are the tensors whose shapes belong to the model, not to its input."""
    sizes: list[int] = []
    places: list[tuple[int, int] | None] = []
    arguments = tuple((a.name, _erased(a.value, sizes)) for a in call.arguments)
    places += [None] * len(sizes)
    tensors = []
    for index, meta in enumerate(metas):
        shape: Hashable = len(meta.shape)
        if index in parameters:
            shape = meta.shape
        else:
            sizes += meta.shape
            places += [(index, dim) for dim in range(len(meta.shape))]
        tensors.append((meta.dtype, shape, _pattern(meta), meta.storage, _relative_offset(meta, metas),
                        meta.requires_grad and context.grad_enabled))  # fmt: skip
    return Form((call.op, context, arguments, tuple(tensors)), tuple(sizes), tuple(places))


def families(forms: Sequence[Form], first: Collection[tuple[Hashable, Key]] = ()) -> list[Family]:
    """Disjoint families of at least `LEAST_SIZES` distinct sizes, the largest first.

    Args:
        forms: of calls that differ.
        first: (fixed, key) of families that take their members before all others, however few they are.
    """
    buckets: dict[Hashable, list[int]] = defaultdict(list)
    for index, form in enumerate(forms):
        buckets[form.fixed].append(index)
    found: list[Family] = []
    for fixed, bucket in buckets.items():
        forced = [key for other, key in first if other == fixed]
        found += _families_of(forms, bucket, forced)
    return found


def _families_of(forms: Sequence[Form], bucket: Sequence[int], forced: Sequence[Key]) -> list[Family]:
    candidates: dict[Key, set[int]] = {key: set() for key in forced}
    for index in bucket:
        for key, size in _keys(forms[index].sizes):
            candidates.setdefault(key, set()).add(size)
    order = {key: number for number, key in enumerate(candidates)}
    ranked = sorted(candidates, key=lambda key: (key not in forced, -len(candidates[key]), order[key]))
    free = dict.fromkeys(bucket)
    found = []
    for key in ranked:
        # One that is as large as another constant of the call is told from the others only here.
        if key not in forced and len(candidates[key]) < LEAST_SIZES - 1:
            break
        if not any(forms[bucket[0]].places[place] for place in key[0]):
            continue
        found_in = {index: _size_in(forms[index].sizes, key) for index in free}
        sizes = {index: size for index, size in found_in.items() if size is not None}
        if key in forced or len(set(sizes.values())) >= LEAST_SIZES:
            members = tuple(sorted(sizes, key=lambda index: sizes[index]))
            found.append(Family(*key, members, tuple(sizes[index] for index in members)))
            for index in members:
                del free[index]
    return found


def _keys(sizes: Sequence[int]) -> Iterable[tuple[Key, int]]:
    """For each distinct size: the family that the call is in if this size is the one that changes."""
    for size in dict.fromkeys(sizes):
        places = tuple(place for place, other in enumerate(sizes) if other == size)
        yield (places, tuple(other for other in sizes if other != size)), size


def _size_in(sizes: Sequence[int], key: Key) -> int | None:
    """The size of a call as a member of a family, None if it is no member."""
    places, rest = key
    size = sizes[places[0]]
    chosen = set(places)
    if any(sizes[place] != size for place in places):
        return None
    others = tuple(other for place, other in enumerate(sizes) if place not in chosen)
    return size if others == rest else None


def representatives(sizes: Iterable[int]) -> tuple[int, ...]:
    """At most four of the sizes, the most telling first.

    Largest, smallest, and between them one that is odd (else no multiple of 8) and one that is a multiple
    of 8 (else of 4, or of 2), both near the middle.
    """
    distinct = sorted(set(sizes))
    if len(distinct) < 2:
        return tuple(distinct)
    low, high = distinct[0], distinct[-1]
    chosen = [high, low]
    between = distinct[1:-1]
    ragged = [size for size in between if size % 2] or [size for size in between if size % ALIGNED]
    if ragged:
        chosen.append(min(ragged, key=lambda size: (abs(2 * size - low - high), size)))
    others = [size for size in between if size not in chosen]
    if others:
        chosen.append(min(others, key=lambda size: (-_alignment(size), abs(2 * size - low - high), size)))
    return tuple(chosen)


def thin(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """At most `most` (4 or more) of the sizes, ascending and spread evenly: ends, an odd one and an aligned one stay."""
    kept = sorted(set(sizes))
    while len(kept) > most:
        ragged = [size for size in kept[1:-1] if size % 2]
        aligned = [size for size in kept[1:-1] if size % ALIGNED == 0]
        spared = {*(ragged if len(ragged) == 1 else ()), *(aligned if len(aligned) == 1 else ())}
        place = min(
            (place for place in range(1, len(kept) - 1) if kept[place] not in spared),
            key=lambda place: kept[place + 1] - kept[place - 1],
        )
        del kept[place]
    return tuple(kept)


def nearest(size: int, kept: Iterable[int]) -> int:
    """The kept size that stands for another: the nearest, the smaller of two."""
    return min(kept, key=lambda other: (abs(other - size), other))


def _alignment(size: int) -> int:
    """Largest of 8, 4, 2, 1 that divides it."""
    return next(step for step in (ALIGNED, 4, 2, 1) if size % step == 0)


def _erased(value: Value, sizes: list[int]) -> Hashable:
    """The tree without its integers, which are added to `sizes`."""
    if value.kind == "int":
        sizes.append(int(value.value or 0))
        return "int"
    return value.kind, value.value, value.keys, tuple(_erased(item, sizes) for item in value.items)


def _pattern(meta: TensorMeta) -> Hashable:
    """How strides follow from sizes: in the order of memory, each is dense on the one before, or a number."""
    # In a row-major tensor a dimension of size 1 has its place although its stride says nothing.
    dense, row_major = 1, True
    for size, step in zip(reversed(meta.shape), reversed(meta.stride), strict=True):
        row_major &= size == 1 or step == dense
        dense *= size
    if row_major:
        return "row-major"
    order = sorted(
        (step, dim) for dim, (size, step) in enumerate(zip(meta.shape, meta.stride, strict=True)) if size != 1
    )
    expected, pattern = 1, []
    for step, dim in order:
        pattern.append((dim, "dense" if step == expected else step))
        expected = step * meta.shape[dim] if step else expected
    return tuple(pattern)


def _relative_offset(meta: TensorMeta, metas: Sequence[TensorMeta]) -> int:
    """From the first tensor on the same storage."""
    return meta.offset - next(other.offset for other in metas if other.storage == meta.storage)
