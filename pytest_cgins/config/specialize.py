"""`specialize` of an implementation: builds for some sizes, beside the one for all of them.

Each macro is what an expression over the arguments says, so a build with `COLS` 768 is taken by calls in which the
expression is 768, and by no other: no condition is written that could be another than what the macros say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypeVar, cast

from pytest_cgins.config.document import Section, Value, between
from pytest_cgins.core.case import Specialized
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OpCall, TensorMeta

MOST_BUILDS = 16
"""Each is one more compilation of all sources."""
LARGEST = 2**31 - 1
T = TypeVar("T")
Kind = Literal["number", "item", "shape", "ndim", "numel"]
_FORM = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?:\.(?:shape\[|size\()(?P<shape>-?\d{1,2})[\])]|\[(?P<item>-?\d{1,2})\]|(?P<ndim>\.ndim)|(?P<numel>\.numel\(\)))?"
)
_HOW = "write a size of an argument: input.size(-1), input.ndim, input.numel(), stride[0], or dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What one macro is."""

    argument: str
    """Name of the argument."""
    kind: Kind
    """The argument itself, an item of it, or what of the tensor."""
    index: int = 0
    """Of the item or dimension; from the end if it is negative."""


def parse(text: str) -> Size | None:
    """A size of an argument; None for what is not one."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    kind = "number" if found.lastgroup == "name" else found.lastgroup
    return Size(
        argument=found["name"], kind=cast("Kind", kind), index=int(found["shape"] or found["item"] or 0)
    )


def value_of(text: str, call: OpCall, tensors: Sequence[TensorMeta]) -> int | None:
    """A size of a recorded call; None where it has none."""
    size = parse(text)
    names = {argument.name.replace(".", "_"): argument.value for argument in call.arguments}
    value = names.get(size.argument) if size else None
    if size is None or value is None:
        return None
    if value.kind == "tensor":
        shape = tensors[int(value.value or 0)].shape
        sizes = {"ndim": len(shape), "numel": math.prod(shape), "shape": _at(shape, size.index)}
        return sizes.get(size.kind)
    if size.kind == "item":
        value = _at(value.items if value.kind in ("tuple", "list", "size") else (value,), size.index)
    elif size.kind != "number":
        return None
    return int(value.value or 0) if value is not None and value.kind in ("int", "bool") else None


def _at(items: Sequence[T], index: int) -> T | None:
    return items[index] if -len(items) <= index < len(items) else None


def unmet(
    it: Specialized, calls: Sequence[tuple[OpCall, Sequence[TensorMeta]]]
) -> tuple[tuple[int, ...], ...]:
    """Builds that no recorded call takes, so that nothing would check them."""
    seen = {tuple(value_of(text, *call) for text in it.sizes) for call in calls}
    return tuple(build for build in it.builds if build not in seen)


def specialized(value: Value, defines: Collection[str]) -> Specialized:
    """`specialize: {macros: {NAME: SIZE}, builds: [{NAME: NUMBER}]}`, beside the implementation's other macros, `defines`.

    Raises:
        ConfigError: a macro is no size, or a build does not give each macro one whole number; with file and line.
    """
    section = value.mapping()
    section.refuse_unknown(("macros", "builds"))
    macros = section.require("macros", remedy="add macros: {COLS: input.size(-1)}").mapping()
    sizes = {name: _size(macros[name], defines) for name in macros}
    if not sizes:
        section.fail(f"{section.title} has no macro", remedy="add macros: {COLS: input.size(-1)}")
    listed = section.require("builds", remedy=f"add builds: [{{{next(iter(sizes))}: 768}}]")
    if not 1 <= (number := len(listed.items())) <= MOST_BUILDS:
        listed.fail(
            f"builds of {section.title} has {counted(number, 'entry', 'entries')}",
            remedy=f"list 1 to {MOST_BUILDS} builds",
        )
    numbers = count(1)
    builds = listed.distinct(
        lambda item: _build(item.mapping(f"build {next(numbers)} of {section.title}"), tuple(sizes))
    )
    return Specialized(macros=tuple(sizes), sizes=tuple(sizes.values()), builds=builds)


def check_macro(value: Value) -> None:
    """Refuse a key that is not the name of a macro."""
    if not re.fullmatch(r"[A-Za-z_]\w*", value.key):
        value.fail(f'"{value.key}" is not the name of a macro', remedy="use letters, digits and _")


def _size(value: Value, defines: Collection[str]) -> str:
    check_macro(value)
    if value.key in defines:
        value.fail(
            f'"{value.key}" is in defines as well',
            remedy="leave it out there: other calls have no such macro",
        )
    text = value.scalar().strip()
    if parse(text) is None:
        value.fail(f"{value.label} is {text[:80]}, which is not a size of an argument", remedy=_HOW)
    return text


def _build(section: Section, names: tuple[str, ...]) -> tuple[int, ...]:
    section.refuse_unknown(names)
    number = between(0, LARGEST)
    return tuple(
        number(section.require(name, remedy=f"give each macro a number: {', '.join(names)}"))
        for name in names
    )
