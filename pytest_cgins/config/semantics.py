"""What a user says of an op: the key `semantics` of a kernel, and `pytest_cgins.mark(semantics={…})`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_cgins.config.document import Value
from pytest_cgins.core.text import nearest

if TYPE_CHECKING:
    from yaml import Node

KINDS = ("norm", "softmax", "activation", "other")
ROLES = ("data", "weight", "parameter", "positive", "index", "mask", "table", "keep")
KEYS = ("kind", "roles", "domain", "rows", "fixed", "mutated", "outputs")
RANDOM = "random"
"""An output that every call draws anew."""
INDEX_INTO = "index_into"
"""An output that holds positions in an argument."""
_INDEX_KEYS = (INDEX_INTO, "dim", "distinct", "stable")
_DIMENSION = re.compile(r"(?P<name>.+?)\[(?P<dim>\d+)\]")


class SemanticsError(ValueError):
    """A declaration with an unknown word, or a value of another form.

    Args:
        what: what is wrong, and where.
        remedy: what to write.
    """

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what}\n→ {remedy}")
        self.what, self.remedy = what, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOutput:
    """An output that holds positions in an argument: of positions of equal values, any is right."""

    number: int
    """Of the output."""
    into: str
    """The argument."""
    dims: tuple[int, ...] = ()
    """The dimensions of the argument that a position counts along, row-major; none: all of it, flattened."""
    distinct: bool | None = None
    """Whether no position comes twice in a row; None: as in the op's own answer."""
    stable: bool = False
    """Whether the op promises which of equal values it takes: then there is one right answer, the op's own."""

    def plain(self) -> dict[str, Any]:
        """As JSON, and as it stands in cgins.yaml."""
        return {
            INDEX_INTO: self.into,
            **({"dim": self.dims[0] if len(self.dims) == 1 else list(self.dims)} if self.dims else {}),
            **({} if self.distinct is None else {"distinct": self.distinct}),
            **({"stable": True} if self.stable else {}),
        }

    @property
    def yaml(self) -> str:
        """The lines of cgins.yaml that declare it."""
        keys = ", ".join(f"{key}: {value}" for key, value in self.plain().items())
        return f"semantics: {{outputs: {{{self.number}: {{{keys}}}}}}}"


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
    mutated: tuple[str, ...] = ()
    """Arguments that the op changes, also where the recorded call left their numbers as they were."""
    outputs: tuple[tuple[int, float, float], ...] = ()
    """Number of an output that is random, least and greatest value; infinite where there is no end. Returned tensors
    come first, then the mutated arguments."""
    indices: tuple[IndexOutput, ...] = ()
    """Outputs that hold positions in an argument, numbered likewise."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it names."""
        named = [entry[0] for part in (self.roles, self.domain, self.rows, self.fixed) for entry in part]
        return tuple(dict.fromkeys((*named, *self.mutated, *(index.into for index in self.indices))))

    @property
    def _numbers(self) -> set[int]:
        """The outputs that it describes."""
        return {*(output[0] for output in self.outputs), *(index.number for index in self.indices)}

    def __or__(self, other: Declared) -> Declared:
        """Both, where this one comes first."""
        return Declared(
            kind=self.kind or other.kind,
            roles=_first_of(self.roles, other.roles),
            domain=_first_of(self.domain, other.domain),
            rows=_first_of(self.rows, other.rows),
            fixed=tuple(dict.fromkeys((*self.fixed, *other.fixed))),
            mutated=tuple(dict.fromkeys((*self.mutated, *other.mutated))),
            outputs=(*self.outputs, *(output for output in other.outputs if output[0] not in self._numbers)),
            indices=(*self.indices, *(index for index in other.indices if index.number not in self._numbers)),
        )

    def plain(self) -> dict[str, Any]:
        """As JSON; `declared` reads it again."""
        return {
            **({"kind": self.kind} if self.kind else {}),
            "roles": dict(self.roles),
            "domain": {name: _open(low, high) for name, low, high in self.domain},
            "rows": {name: list(dims) for name, dims in self.rows},
            "fixed": [name if dim is None else f"{name}[{dim}]" for name, dim in self.fixed],
            "mutated": list(self.mutated),
            "outputs": {
                **{str(number): {RANDOM: _open(low, high)} for number, low, high in self.outputs},
                **{str(index.number): index.plain() for index in self.indices},
            },
        }


def semantics(value: Value) -> Declared:
    """`semantics: {kind, roles, domain, rows, fixed, mutated, outputs}` of a kernel.

    Raises:
        ConfigError: with the line.
    """
    section = value.mapping()
    section.refuse_unknown(KEYS)
    try:
        return declared({key: _plain(section[key].node) for key in section})
    except SemanticsError as error:
        value.fail(f"{section.title}: {error.what}", remedy=error.remedy)


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
    drawn, indices = _outputs(given.get("outputs", {}))
    return Declared(
        kind=str(kind),
        roles=tuple((name, str(role)) for name, role in roles.items()),
        domain=tuple((name, *_ends(name, ends)) for name, ends in _mapping(given, "domain").items()),
        rows=tuple((name, _dims(name, dims)) for name, dims in _mapping(given, "rows").items()),
        fixed=tuple(_dimension(text) for text in _list(given, "fixed", "[heads, 'x[1]']")),
        mutated=_list(given, "mutated", "[x, running_mean]"),
        outputs=drawn,
        indices=indices,
    )


def _first_of(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    named = {entry[0] for entry in first}
    return (*first, *(entry for entry in second if entry[0] not in named))


def _known(kind: str, words: Iterable[Any], known: tuple[str, ...]) -> None:
    for word in words:
        if word not in known:
            raise SemanticsError(
                f'the {kind} "{word}" is unknown',
                remedy=nearest(str(word), known) or f"write one of {', '.join(known)}",
            )


def _list(given: Mapping[str, Any], key: str, example: str) -> tuple[str, ...]:
    names = given.get(key, [])
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise SemanticsError(f"{key} is not a list of arguments", remedy=f"write e.g. {key}: {example}")
    return tuple(names)


def _outputs(given: Any) -> tuple[tuple[tuple[int, float, float], ...], tuple[IndexOutput, ...]]:
    """Random outputs and those of positions: `{0: random}`, `{0: {random: [0, 1]}}`, `{1: {index_into: x, dim: -1}}`."""
    remedy = (
        "write e.g. outputs: {1: random}, counted from 0, {1: {random: [0, 1]}} with its domain, or "
        "{1: {index_into: x, dim: -1}}"
    )
    if not isinstance(given, Mapping):
        raise SemanticsError("outputs is not a mapping of numbers", remedy=remedy)
    drawn, indices = [], []
    for key, output in given.items():
        if not str(key).isdecimal():
            raise SemanticsError(f'the output "{key}" is not a number', remedy=remedy)
        if isinstance(output, Mapping) and RANDOM not in output:
            indices.append(_index_output(int(key), output))
            continue
        _known("property of an output", output if isinstance(output, Mapping) else [output], (RANDOM,))
        ends = output[RANDOM] if isinstance(output, Mapping) else (None, None)
        drawn.append((int(key), *_ends(f"output {key}", ends)))
    return tuple(drawn), tuple(indices)


def _index_output(number: int, output: Mapping[str, Any]) -> IndexOutput:
    """`{index_into: x, dim: -1}`; `dim` may be a list, and all of `x` is counted through without it."""
    remedy = f"write e.g. {number}: {{{INDEX_INTO}: x, dim: -1}}"
    _known("property of an output", output, (RANDOM, *_INDEX_KEYS))
    into, dim = output.get(INDEX_INTO), output.get("dim")
    if not isinstance(into, str):
        raise SemanticsError(f"{INDEX_INTO} of output {number} is not an argument", remedy=remedy)
    dims = list(dim) if isinstance(dim, (list, tuple)) else [] if dim is None else [dim]
    if not all(type(dim) is int for dim in dims) or len(set(dims)) < len(dims):
        raise SemanticsError(
            f"dim of output {number} is neither a dimension nor a list of them", remedy=remedy
        )
    for key in ("distinct", "stable"):
        if not isinstance(output.get(key, False), bool):
            raise SemanticsError(
                f"{key} of output {number} is neither true nor false", remedy=f"write {key}: true"
            )
    return IndexOutput(
        number=number,
        into=into,
        dims=tuple(dims),
        distinct=output.get("distinct"),
        stable=output.get("stable", False),
    )


def _open(low: float, high: float) -> list[float | None]:
    """Ends as JSON has them."""
    return [None if math.isinf(end) else end for end in (low, high)]


def _mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    arguments = given.get(key, {})
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise SemanticsError(f"{key} is not a mapping of arguments", remedy=f"write {key}: {{ARGUMENT: …}}")
    return arguments


def _ends(name: str, ends: Any) -> tuple[float, float]:
    remedy = f"write {name}: [0, 1], and null for an end that is open"
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise SemanticsError(f"the domain of {name} is not two numbers", remedy=remedy)
    try:
        low, high = (
            open_end if end is None else float(end)
            for end, open_end in zip(ends, (-math.inf, math.inf), strict=True)
        )
    except (TypeError, ValueError):
        raise SemanticsError(f"the domain of {name} is not two numbers", remedy=remedy) from None
    if not low < high:
        raise SemanticsError(f"the domain of {name} is empty: [{low:g}, {high:g}]", remedy=remedy)
    return low, high


def _dims(name: str, dims: Any) -> tuple[int, ...]:
    if not isinstance(dims, (list, tuple)) or not all(type(dim) is int and dim >= 0 for dim in dims):
        raise SemanticsError(
            f"the rows of {name} are not dimensions", remedy=f"write {name}: [0, 1], counted from 0"
        )
    return tuple(dims)


def _dimension(text: str) -> tuple[str, int | None]:
    match = _DIMENSION.fullmatch(text)
    return (match["name"], int(match["dim"])) if match else (text, None)


def _plain(node: Node) -> Any:
    """A YAML node as plain data; single values but whole numbers, true, false and null are text."""
    tag = node.tag.rpartition(":")[2]
    if tag == "map":
        return {str(key.value): _plain(value) for key, value in node.value}
    if tag == "seq":
        return [_plain(item) for item in node.value]
    if tag == "null":
        return None
    if tag == "int" and str(node.value).removeprefix("-").isdecimal():
        return int(node.value)
    if tag == "bool" and str(node.value).lower() in ("true", "false"):
        return str(node.value).lower() == "true"
    return str(node.value)
