"""Arguments that belong together: `semantics: {coupled: {cu_seqlens: {offsets: "x[0]"}}}`, one dataclass a kind."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeAlias

from pytest_cgins.config.document import Value, keys

SORTED = "sorted"
_FACTOR = re.compile(r"(?P<name>[^\W\d][\w.]*)(?:\[(?P<dim>\d+)\])?|(?P<number>\d{1,18})")
_EXAMPLE = 'offsets: {offsets: "x[0]"}'

Size: TypeAlias = tuple[tuple[str, int | None], ...]
"""Factors of a size: argument and dimension; an integer argument, or a number in digits, with None."""


def _size(value: Value) -> Size:
    """`x[0]`, `experts`, `64`, or a product of them: `table[1]*cache[1]`."""
    matches = [_FACTOR.fullmatch(part.strip()) for part in value.scalar().split("*")]
    if None in matches:
        value.fail(
            f'{value.label} is "{value.scalar()}", which is no size',
            remedy=f'write a dimension of an argument, {value.key}: "x[0]", an integer argument, a number, or a product of them',
        )
    found = [match for match in matches if match is not None]
    return tuple((m["name"] or m["number"], None if m["dim"] is None else int(m["dim"])) for m in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    argument: str
    """The argument of which it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets(_Said):
    """Where segments begin, and where the last one ends: rises from 0 to a size along the last axis."""

    size: Annotated[Size, _size, "offsets"]
    """What is divided into segments."""
    first: Annotated[bool, Value.boolean] = True
    """Whether it begins with 0; without it the first number is the end of the first segment."""
    last: Annotated[bool, Value.boolean] = True
    """Whether it ends with the size; without it the last number is the begin of the last segment."""
    least: Annotated[int, Value.integer] = 0
    """Length of the shortest segment that is legal."""
    most: Annotated[Size, _size] = ()
    """Length of the longest one; () for the whole size."""
    multiple: Annotated[int, Value.integer] = 1
    """What the length of every segment but the last is a multiple of."""
    within: Annotated[Size, _size] = ()
    """The argument with the lengths that none of these exceeds, such as those of keys: alone, or in pages of a size."""
    kind: Literal["offsets"] = "offsets"
    """Which of `Coupling` it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(_Said):
    """Lengths of sequences within a size: of padded or paged ones, or of the segments that a size is divided into."""

    size: Annotated[Size, _size, "lengths"]
    """The greatest length: of a product, such as pages of a sequence and tokens of a page, the last factor is a page."""
    sum: Annotated[bool, Value.boolean] = False
    """Whether they add up to the size, along the last axis."""
    least: Annotated[int, Value.integer] = 0
    """The shortest one that is legal."""
    within: Annotated[Size, _size] = ()
    """As of `Offsets`."""
    kind: Literal["lengths"] = "lengths"
    """Which of `Coupling` it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages(_Said):
    """A page table: numbers of pages, none twice; where pages are fewer than entries, none twice in a row of the table.

    Negative numbers, which are no pages, stay where they are.
    """

    size: Annotated[Size, _size, "pages"]
    """How many pages there are."""
    kind: Literal["pages"] = "pages"
    """Which of `Coupling` it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing(_Said):
    """Experts of tokens: (tokens,), or (tokens, k) with k different ones a token."""

    size: Annotated[Size, _size, "routing"]
    """How many experts there are."""
    weights: Annotated[str, Value.text] = ""
    """The argument of the same shape that holds their gates, whose sum a token stays as recorded; "" for none."""
    counts: Annotated[str, Value.text] = ""
    """The argument that holds the number of tokens of each expert; "" for none."""
    kind: Literal["routing"] = "routing"
    """Which of `Coupling` it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted(_Said):
    """Numbers that never fall along the last axis."""

    size: Annotated[Size, _size, "sorted"] = ()
    """What integers stay below; () for floating-point numbers."""
    kind: Literal["sorted"] = "sorted"
    """Which of `Coupling` it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique(_Said):
    """Integers of which none comes twice."""

    size: Annotated[Size, _size, "unique"]
    """What they stay below."""
    kind: Literal["unique"] = "unique"
    """Which of `Coupling` it is."""


Coupling: TypeAlias = Offsets | Lengths | Pages | Routing | Sorted | Unique
KINDS: dict[str, type[Coupling]] = {
    "offsets": Offsets, "lengths": Lengths, "pages": Pages, "routing": Routing, SORTED: Sorted, "unique": Unique,
}  # fmt: skip


def couplings(value: Value) -> tuple[Coupling, ...]:
    """`{cu_seqlens: {offsets: "x[0]"}, edges: sorted}`."""
    read: list[Coupling] = []
    for name, item in value.mapping().items():
        if item.is_a("str"):
            item.choice(SORTED, otherwise=f"a mapping such as {{{_EXAMPLE}}}")
            read.append(Sorted(argument=name))
            continue
        section = item.mapping(f'"{name}" in {value.key} of {value.section.title}')
        kinds = [kind for kind in KINDS if kind in section]
        if len(kinds) != 1:
            section.refuse_unknown(dict.fromkeys(key for cls in KINDS.values() for key in keys(cls)))
            section.fail(
                f"{section.title} has {' and '.join(kinds) or 'no kind'}",
                remedy=f"write one of {', '.join(KINDS)}, e.g. {_EXAMPLE}",
            )
        cls = KINDS[kinds[0]]
        read.append(cls(argument=name, **section.fields(cls)))
    return tuple(read)


def drawn_by(coupling: Coupling) -> tuple[str, ...]:
    """The arguments whose numbers it tells."""
    others = (coupling.weights, coupling.counts) if isinstance(coupling, Routing) else ()
    return tuple(name for name in (coupling.argument, *others) if name)


def arguments_of(coupling: Coupling) -> tuple[str, ...]:
    """The arguments that it names."""
    sizes = coupling.size
    if isinstance(coupling, Offsets | Lengths):
        sizes += coupling.within + (coupling.most if isinstance(coupling, Offsets) else ())
    named = (*drawn_by(coupling), *(name for name, _ in sizes if not name.isdecimal()))
    return tuple(dict.fromkeys(named))


def written(size: Size) -> str:
    """A size as it is written in cgins.yaml."""
    return "*".join(name if dim is None else f"{name}[{dim}]" for name, dim in size)


def yaml_of(coupling: Coupling) -> str:
    """The lines of cgins.yaml that declare it."""
    if coupling == Sorted(argument=coupling.argument):
        return f"semantics: {{coupled: {{{coupling.argument}: {SORTED}}}}}"
    parts = []
    for field in fields(coupling):
        given = getattr(coupling, field.name)
        if field.name in ("argument", "kind") or given == field.default:
            continue
        key = coupling.kind if field.name == "size" else field.name
        text = f'"{written(given)}"' if isinstance(given, tuple) else given
        text = str(given).lower() if isinstance(given, bool) else text
        parts.append(f"{key}: {text}")
    return f"semantics: {{coupled: {{{coupling.argument}: {{{', '.join(parts)}}}}}}}"
