"""What a user says of an op: the key `semantics` of a kernel, and `pytest_cgins.mark(semantics={…})`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pytest_cgins.config import document
from pytest_cgins.config.coupled import Coupling, arguments_of, couplings
from pytest_cgins.config.document import Reader, Section, Value, one_of
from pytest_cgins.core.errors import ConfigError

Kind = Literal["norm", "softmax", "activation", "other"]
Role = Literal["data", "weight", "parameter", "positive", "codes", "index", "mask", "table", "keep"]
RANDOM = "random"
"""An output that every call draws anew."""
INDEX_INTO = "index_into"
"""An output that holds positions in an argument."""
_DIMENSION = re.compile(r"(?P<name>.+?)\[(?P<dim>\d+)\]")
_OUTPUTS = (
    "write e.g. outputs: {1: random}, counted from 0, {1: {random: [0, 1]}} with its domain, or "
    "{1: {index_into: x, dim: -1}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOutput:
    """An output that holds positions in an argument: of positions of equal values, any is right."""

    number: int
    """Of the output."""
    into: Annotated[str, Value.text, INDEX_INTO]
    """The argument."""
    dims: Annotated[tuple[int, ...], _dims, "dim"] = ()
    """The dimensions of the argument that a position counts along, row-major; none: all of it, flattened."""
    distinct: Annotated[bool | None, Value.boolean] = None
    """Whether no position comes twice in a row; None: as in the op's own answer."""
    stable: Annotated[bool, Value.boolean] = False
    """Whether the op promises which of equal values it takes: then there is one right answer, the op's own."""

    @property
    def yaml(self) -> str:
        """The lines of cgins.yaml that declare it."""
        plain = {
            INDEX_INTO: self.into,
            **({"dim": self.dims[0] if len(self.dims) == 1 else list(self.dims)} if self.dims else {}),
            **({} if self.distinct is None else {"distinct": self.distinct}),
            **({"stable": True} if self.stable else {}),
        }
        keys = ", ".join(f"{key}: {value}" for key, value in plain.items())
        return f"semantics: {{outputs: {{{self.number}: {{{keys}}}}}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a user says of an op; whatever is left out is recognised by the op's name and parameters."""

    kind: Annotated[str, one_of(Kind)] = ""
    """Which edge rows the op gets; "" as it is recognised."""
    roles: Annotated[tuple[tuple[str, str], ...], _by_argument(one_of(Role))] = ()
    """Argument and its role."""
    domain: Annotated[tuple[tuple[str, float | None, float | None], ...], _domains] = ()
    """Argument, least and greatest value; None for an end that is open."""
    rows: Annotated[tuple[tuple[str, tuple[int, ...]], ...], _by_argument(_rows)] = ()
    """Argument, and those of its dimensions that number independent rows."""
    fixed: Annotated[tuple[tuple[str, int | None], ...], _fixed] = ()
    """Argument and dimension whose size must not change; None for all of the argument."""
    mutated: Annotated[tuple[str, ...], Value.texts] = ()
    """Arguments that the op changes, also where the recorded call left their numbers as they were."""
    outputs: Annotated[tuple[tuple[int, float | None, float | None], ...], _random_outputs] = ()
    """Number of an output that is random, least and greatest value; None for an end that is open. Returned tensors
    come first, then the mutated arguments."""
    indices: Annotated[tuple[IndexOutput, ...], _index_outputs, "outputs"] = ()
    """Outputs that hold positions in an argument, numbered likewise."""
    coupled: Annotated[tuple[Coupling, ...], couplings] = ()
    """Arguments that belong together."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it names."""
        named = [entry[0] for part in (self.roles, self.domain, self.rows, self.fixed) for entry in part]
        named += [name for coupling in self.coupled for name in arguments_of(coupling)]
        return tuple(dict.fromkeys((*named, *self.mutated, *(index.into for index in self.indices))))

    @property
    def _numbers(self) -> set[int]:
        """The outputs that it describes."""
        return {*(output[0] for output in self.outputs), *(index.number for index in self.indices)}

    @property
    def _coupled(self) -> set[str]:
        """The arguments that it says are coupled."""
        return {coupling.argument for coupling in self.coupled}

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
            coupled=(*self.coupled, *(one for one in other.coupled if one.argument not in self._coupled)),
        )


def semantics(value: Value) -> Declared:
    """`semantics: {kind, roles, domain, rows, fixed, mutated, outputs, coupled}` of a kernel.

    Raises:
        ConfigError: with the line.
    """
    return Declared(**value.mapping().fields(Declared))


def declared(given: Mapping[str, Any]) -> Declared:
    """The same of plain data.

    Raises:
        ConfigError: a key, kind or role is unknown, or a value has another form.
    """
    import yaml

    try:
        text = yaml.safe_dump(dict(given), sort_keys=False)
        section = document.read(Path("semantics"), content=text.encode())
        section.title = "semantics"
        return Declared(**section.fields(Declared))
    except yaml.YAMLError as error:
        raise ConfigError(
            f"semantics is no plain data: {error}", remedy="write it as in cgins.yaml"
        ) from None
    except ConfigError as error:
        raise ConfigError(error.what.partition(": ")[2], remedy=error.remedy) from None


def _first_of(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    named = {entry[0] for entry in first}
    return (*first, *(entry for entry in second if entry[0] not in named))


def _by_argument(read: Reader) -> Reader:
    """A reader of a mapping of arguments: each name, and what is said of it."""
    return lambda value: tuple((name, read(item)) for name, item in value.mapping().items())


def _domains(value: Value) -> tuple[tuple[str, float | None, float | None], ...]:
    return tuple((name, *_ends(item)) for name, item in value.mapping().items())


def _ends(value: Value) -> tuple[float | None, float | None]:
    remedy = f"write {value.key}: [0, 1], and null for an end that is open"
    items = value.items() if value.is_a("seq") else []
    try:
        low, high = (
            open_end if item.is_a("null") else float(item.scalar().replace(".inf", "inf"))
            for item, open_end in zip(items, (-math.inf, math.inf), strict=True)
        )
    except ValueError:
        value.fail(f"{value.label} is not two numbers", remedy=remedy)
    if not low < high:
        value.fail(f"{value.label} is empty: [{low:g}, {high:g}]", remedy=remedy)
    return (None if math.isinf(low) else low), (None if math.isinf(high) else high)


def _rows(value: Value) -> tuple[int, ...]:
    return tuple(item.integer() for item in value.items())


def _fixed(value: Value) -> tuple[tuple[str, int | None], ...]:
    """Arguments, and dimensions such as `x[1]`."""
    matches = {text: _DIMENSION.fullmatch(text) for text in value.texts()}
    return tuple(
        (match["name"], int(match["dim"])) if match else (text, None) for text, match in matches.items()
    )


def _outputs(value: Value) -> Iterator[tuple[int, Section | None]]:
    """Number of an output and what is said of it; None for the word `random` alone."""
    for key, item in value.mapping().items():
        if not key.isdecimal():
            item.fail(f'the output "{key}" is not a number', remedy=_OUTPUTS)
        if item.is_a("str"):
            item.choice(RANDOM, otherwise="a mapping such as {index_into: x, dim: -1}")
            yield int(key), None
        else:
            yield int(key), item.mapping(f"output {key} of {value.section.title}")


def _random_outputs(value: Value) -> tuple[tuple[int, float | None, float | None], ...]:
    """`{0: random}`, `{0: {random: [0, 1]}}`."""
    drawn: list[tuple[int, float | None, float | None]] = []
    for number, section in _outputs(value):
        if section is None:
            drawn.append((number, None, None))
        elif RANDOM in section:
            section.refuse_unknown((RANDOM,))
            drawn.append((number, *_ends(section[RANDOM])))
    return tuple(drawn)


def _index_outputs(value: Value) -> tuple[IndexOutput, ...]:
    """`{1: {index_into: x, dim: -1}}`; `dim` may be a list, and all of `x` is counted through without it."""
    indices: list[IndexOutput] = []
    for number, section in _outputs(value):
        if section is not None and RANDOM not in section:
            section.refuse_unknown((RANDOM, *document.keys(IndexOutput)))
            section.require(INDEX_INTO, remedy=f"write e.g. {number}: {{{INDEX_INTO}: x, dim: -1}}")
            indices.append(IndexOutput(number=number, **section.fields(IndexOutput)))
    return tuple(indices)


def _dims(value: Value) -> tuple[int, ...]:
    """A dimension, from the end if it is negative, or a list of them."""
    items = value.items() if value.is_a("seq") else [value]
    texts = [str(item.node.value) for item in items if item.is_a("int")]
    dims = tuple(int(text) for text in texts if text.removeprefix("-").isdecimal())
    if len(set(dims)) < len(items):
        value.fail(
            f"{value.label} is neither a dimension nor a list of them", remedy="write dim: -1, or dim: [0, 1]"
        )
    return dims
