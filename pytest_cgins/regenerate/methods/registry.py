"""All methods that are known: ours, and those of a user's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pytest_cgins.config import document
from pytest_cgins.config.document import Readers, Value, Word, between, shown
from pytest_cgins.core.device import DEVICES, device_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.regenerate.methods import model

T = TypeVar("T")

VERSION = 1
_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_RANGE = re.compile(r"(\d{2,3})?(-)?(\d{2,3})?")
_LAST = 9999
_MOST_CHARACTERS = 900


def read(file: Path) -> tuple[model.Method, ...]:
    """The methods of a file, in its order.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    top = document.read(file)
    top.refuse_unknown(("version", "methods"))
    version = top.require("version", remedy=f"write version: {VERSION}")
    if version.integer() != VERSION:
        version.fail(f"version {version.scalar()} of a methods file", remedy=f"write version: {VERSION}")
    methods = top.require("methods", remedy="write methods: and below it one entry a method").mapping(
        "methods"
    )
    values = [methods.require(name, remedy="write it") for name in methods]
    return tuple(_method(value.key, value) for value in values)


def _method(name: str, value: Value) -> model.Method:
    if len(name) > 60 or not _ID.fullmatch(name):
        value.fail(f'"{name}" is not a method id', remedy="write lower-case words with hyphens: vector-loads")
    it = value.mapping(f'method "{name}"')
    it.refuse_unknown((*_READERS, "languages", "how", "capability", "sass"))
    for key, remedy in _REQUIRED.items():
        it.require(key, remedy=remedy)
    fields = it.read(_READERS, others=True)
    device = device_of(fields.get("device", "cuda"))
    known = tuple(one for one in model.LANGUAGES if one in device.languages)
    least, most = _range(it.get("capability"), cpu=not device.is_cuda)
    languages = it.read({"languages": _in_order(known)}, others=True).get("languages") or known
    how: Readers = {
        "how": lambda how: how.mapping(f"how of {it.title}").read(dict.fromkeys(languages, _text))
    }
    signatures = it.read({"sass": _each(_signature)}, others=True).get("sass", ())
    more = {"id": name, "languages": languages, "signatures": signatures, **it.read(how, others=True)}
    return model.Method(**{**fields, **more, "least_capability": least, "most_capability": most})


def _text(value: Value) -> str:
    text = " ".join(value.text().split())
    if len(text) > _MOST_CHARACTERS:
        value.fail(
            f'"{value.key}" of {value.section.title} has {counted(len(text), "character")}',
            remedy=f"say it in {_MOST_CHARACTERS}: prompts quote it",
        )
    return text


def _each(reader: Callable[[Value], T]) -> Callable[[Value], tuple[T, ...]]:
    return lambda value: tuple(map(reader, value.items()))


def _in_order(known: Sequence[Word]) -> Callable[[Value], tuple[Word, ...]]:
    """A reader of some words, which gives them in the order of those that are known."""

    def read_words(value: Value) -> tuple[Word, ...]:
        named = [item.choice(*known) for item in value.items()]
        return tuple(word for word in known if word in named)

    return read_words


def _range(value: Value | None, *, cpu: bool = False) -> tuple[int, int]:
    """`80`: from 80 on; `80-89`: up to 89, too; `-89`: up to 89."""
    if value is None:
        return (0 if cpu else 70), _LAST
    found = _RANGE.fullmatch(value.scalar())
    first, last = (
        (int(found[1] or 70), int(found[3] or _LAST)) if found and (found[1] or found[3]) else (1, 0)
    )
    if cpu or first > last:
        value.fail(
            f'"{value.key}" in {value.section.title} is {value.scalar()}',
            remedy="leave it out for a CPU" if cpu else "write 80 for sm_80 and later, or 80-89",
        )
    return first, last


def _trigger(value: Value) -> model.Trigger:
    told = value.mapping(f"a trigger of {value.section.title}")
    told.refuse_unknown(("metric", "good", "bad"))
    metric = told.require("metric", remedy="name a metric of ncu or a figure of ours")
    name = metric.text()
    if not model.is_metric(name):
        metric.fail(
            f'"{name}" in {told.title} is not a metric',
            remedy=nearest(name, model.FIGURES)
            or f"name a metric of ncu with its suffix, or one of {', '.join(model.FIGURES)}",
        )
    good, bad = (told.require(key, remedy=f"write the {key} value") for key in ("good", "bad"))
    if good.amount() == bad.amount():
        bad.fail(
            f"good and bad of {told.title} are both {bad.scalar()}",
            remedy="they tell which direction is better",
        )
    return model.Trigger(metric=name, good=good.amount(), bad=bad.amount())


def _signature(value: Value) -> model.Signature:
    told = value.mapping(f"a SASS signature of {value.section.title}")
    told.refuse_unknown(("sm", "any", "all"))
    if ("any" in told) == ("all" in told):
        told.fail(
            f"{told.title} must have either any or all", remedy="write any: [REGEX, …] or all: [REGEX, …]"
        )
    mode: Literal["any", "all"] = "any" if "any" in told else "all"
    listed = told[mode]
    patterns = tuple(_pattern(item) for item in listed.items())
    if not patterns:
        listed.fail(f"{told.title} is empty", remedy="leave sass out where machine code does not tell")
    least, most = _range(told.get("sm"))
    return model.Signature(least=least, most=most, mode=mode, patterns=patterns)


def _pattern(value: Value) -> str:
    text = value.text()
    try:
        found = re.compile(text)
    except re.error as error:
        value.fail(
            f'"{text}" in {value.section.title} is not a regular expression: {error}', remedy="correct it"
        )
    if found.match(""):
        value.fail(f'"{text}" in {value.section.title} matches anything', remedy="begin with an opcode: HMMA")
    return text


_LINES = _each(lambda one: " ".join(one.text().split()))
_READERS: Readers = {
    "title": _text,
    "axis": lambda value: value.choice(*model.AXES),
    "priority": between(1, 3),
    "what": _text,
    "device": lambda value: value.choice(*reversed(DEVICES)),
    "needs": _LINES,
    "families": _in_order(model.FAMILIES),
    "dtypes": _each(lambda one: one.choice(*model.DTYPES)),
    "triggers": _each(_trigger),
    "requires": _LINES,
    "conflicts": _LINES,
    "risks": _LINES,
}
_REQUIRED = {
    "title": "write what people call it",
    "axis": f"write {', '.join(model.AXES)}",
    "priority": "write 1 to try it first, 2, or 3 to try it last",
    "what": "write what it does and when it helps, in two to four sentences",
}
"""What to do where a key lacks that must be there."""
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Registry:
    """Methods by id, in the order of their files."""

    methods: Mapping[str, model.Method]
    """By id."""

    def __iter__(self) -> Iterator[model.Method]:
        return iter(self.methods.values())

    def __len__(self) -> int:
        return len(self.methods)

    def __contains__(self, name: object) -> bool:
        return name in self.methods

    def get(self, name: str) -> model.Method:
        """A method by its id.

        Raises:
            ConfigError: there is none of that name.
        """
        found = self.methods.get(name)
        if found is None:
            raise ConfigError(
                f'there is no method "{name}"',
                remedy=nearest(name, self.methods) or "cgins methods ls lists them",
            )
        return found


@cache
def shipped() -> Registry:
    """The methods that come with the package."""
    return _checked({method.id: method for file in sorted(DATA.glob("*.yaml")) for method in read(file)}, {})


def merged(files: Sequence[Path]) -> Registry:
    """The methods that come with the package, and those of a user's files, in order.

    A method of a later file with the id of an earlier one takes its place: so that a user can correct ours.

    Raises:
        ConfigError: a file is wrong, or one of its methods names another that does not exist.
    """
    methods = dict(shipped().methods)
    places: dict[str, str] = {}
    for file in files:
        for method in read(file):
            methods[method.id], places[method.id] = method, shown(file)
    return _checked(methods, places)


def _checked(methods: Mapping[str, model.Method], places: Mapping[str, str]) -> Registry:
    for method in methods.values():
        _check_names(method, methods, places.get(method.id, "built in"))
    return Registry(methods)


def _check_names(method: model.Method, methods: Mapping[str, model.Method], place: str) -> None:
    for key, names in (("requires", method.requires), ("conflicts", method.conflicts)):
        for name in names:
            if name not in methods or name == method.id:
                raise ConfigError(
                    f'{place}: "{key}" of method "{method.id}" names "{name}", '
                    f"{'itself' if name == method.id else 'which is not a method'}",
                    remedy=nearest(name, [other for other in methods if other != method.id])
                    or "name another method, or leave it out",
                )
    if both := set(method.requires) & set(method.conflicts):
        raise ConfigError(
            f'{place}: method "{method.id}" both requires "{min(both)}" and conflicts with it',
            remedy="remove one of the two",
        )
