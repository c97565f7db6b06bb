"""What a user says of an op: the key `semantics` of a kernel, and `pytest_cgins.mark(semantics={…})`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_cgins.config.document import Value
from pytest_cgins.text import nearest

if TYPE_CHECKING:
    from yaml import Node

KINDS = ("norm", "softmax", "activation", "other")
ROLES = ("data", "weight", "parameter", "positive", "index", "mask", "table", "keep")
KEYS = ("kind", "roles", "domain", "rows", "fixed")
_DIMENSION = re.compile(r"(?P<name>.+?)\[(?P<dim>\d+)\]")


class SemanticsError(ValueError):
    """A declaration that says nothing, or nothing that is known.

    Args:
        what: what is wrong, and where.
        remedy: what to write.
    """

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}\n→ {remedy}")
        self.what, self.remedy = what, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a user says of an op; whatever is left out is recognised by the op's name and parameters."""

    kind: str = ""
    """One of `KINDS`: which edge rows the op gets; "" as it is recognised."""
    roles: tuple[tuple[str, str], ...] = ()
    """Argument and its role, one of `ROLES`."""
    domain: tuple[tuple[str, float, float], ...] = ()
    """Argument, least and greatest value; infinite where there is no end."""
    rows: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Argument, and those of its dimensions that number independent rows."""
    fixed: tuple[tuple[str, int | None], ...] = ()
    """Argument and dimension whose size must not change; None for all of the argument."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that are spoken of."""
        spoken = [entry[0] for part in (self.roles, self.domain, self.rows, self.fixed) for entry in part]
        return tuple(dict.fromkeys(spoken))

    def __or__(self, other: Declared) -> Declared:
        """Both, where this one comes first."""
        return Declared(
            kind=self.kind or other.kind,
            roles=_first_of(self.roles, other.roles),
            domain=_first_of(self.domain, other.domain),
            rows=_first_of(self.rows, other.rows),
            fixed=tuple(dict.fromkeys((*self.fixed, *other.fixed))),
        )

    def plain(self) -> dict[str, Any]:
        """As JSON; `declared` reads it again."""
        ends = {
            name: [None if math.isinf(end) else end for end in (low, high)] for name, low, high in self.domain
        }
        return {
            **({"kind": self.kind} if self.kind else {}),
            "roles": dict(self.roles),
            "domain": ends,
            "rows": {name: list(dims) for name, dims in self.rows},
            "fixed": [name if dim is None else f"{name}[{dim}]" for name, dim in self.fixed],
        }


def semantics(value: Value | None, kernel: str) -> Declared:
    """`semantics: {kind, roles, domain, rows, fixed}` of a kernel.

    Raises:
        ConfigError: with the line.
    """
    if value is None:
        return Declared()
    section = value.mapping(f'semantics of kernel "{kernel}"')
    section.refuse_unknown(KEYS)
    try:
        return declared({key: _plain(section.require(key, remedy="").node) for key in section})
    except SemanticsError as error:
        return value.fail(f'semantics of kernel "{kernel}": {error.what}', remedy=error.remedy)


def declared(given: Mapping[str, Any]) -> Declared:
    """A declaration from plain data, as it stands in cgins.yaml.

    Raises:
        SemanticsError: a key, kind or role is unknown, or a value has another form.
    """
    _known("key", given, KEYS)
    kind = given.get("kind", "")
    if kind:
        _known("kind", [kind], KINDS)
    roles = _mapping(given, "roles")
    _known("role", roles.values(), ROLES)
    fixed = given.get("fixed", [])
    if not isinstance(fixed, (list, tuple)) or not all(isinstance(one, str) for one in fixed):
        raise SemanticsError("fixed is no list of arguments", remedy="write e.g. fixed: [heads, 'x[1]']")
    return Declared(
        kind=str(kind),
        roles=tuple((name, str(role)) for name, role in roles.items()),
        domain=tuple((name, *_ends(name, ends)) for name, ends in _mapping(given, "domain").items()),
        rows=tuple((name, _dims(name, dims)) for name, dims in _mapping(given, "rows").items()),
        fixed=tuple(_place(one) for one in fixed),
    )


def _first_of(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    named = {entry[0] for entry in first}
    return (*first, *(entry for entry in second if entry[0] not in named))


def _known(what: str, words: Iterable[Any], known: tuple[str, ...]) -> None:
    for word in words:
        if word not in known:
            raise SemanticsError(
                f'the {what} "{word}" is unknown',
                remedy=nearest(str(word), known) or f"write one of {', '.join(known)}",
            )


def _mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = given.get(key, {})
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise SemanticsError(f"{key} is no mapping of arguments", remedy=f"write {key}: {{ARGUMENT: …}}")
    return found


def _ends(name: str, ends: Any) -> tuple[float, float]:
    wanted = f"write {name}: [0, 1], and null for an end that is open"
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise SemanticsError(f"the domain of {name} is not two numbers", remedy=wanted)
    try:
        low, high = (
            open_end if end is None else float(end)
            for end, open_end in zip(ends, (-math.inf, math.inf), strict=True)
        )
    except (TypeError, ValueError):
        raise SemanticsError(f"the domain of {name} is not two numbers", remedy=wanted) from None
    if not low < high:
        raise SemanticsError(f"the domain of {name} is empty: [{low:g}, {high:g}]", remedy=wanted)
    return low, high


def _dims(name: str, dims: Any) -> tuple[int, ...]:
    if not isinstance(dims, (list, tuple)) or not all(type(dim) is int and dim >= 0 for dim in dims):
        raise SemanticsError(
            f"the rows of {name} are not dimensions", remedy=f"write {name}: [0, 1], counted from 0"
        )
    return tuple(dims)


def _place(text: str) -> tuple[str, int | None]:
    match = _DIMENSION.fullmatch(text)
    return (match["name"], int(match["dim"])) if match else (text, None)


def _plain(node: Node) -> Any:
    """A YAML node as plain data; single values but numbers and null are text."""
    tag = node.tag.rpartition(":")[2]
    if tag == "map":
        return {str(key.value): _plain(value) for key, value in node.value}
    if tag == "seq":
        return [_plain(item) for item in node.value]
    if tag == "null":
        return None
    if tag == "int" and str(node.value).isdecimal():
        return int(node.value)
    return str(node.value)
