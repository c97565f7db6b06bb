"""All methods that are known: ours, and those of a user's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_cgins.config import document
from pytest_cgins.config.document import Value
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest, shown
from pytest_cgins.regenerate.methods import definition

VERSION = 1
_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


def read(file: Path) -> tuple[definition.Method, ...]:
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


def _method(name: str, value: Value) -> definition.Method:
    if len(name) > 60 or not _ID.fullmatch(name):
        value.fail(f'"{name}" is not a method id', remedy="write lower-case words with hyphens: vector-loads")
    it = value.mapping(f'method "{name}"')
    it.refuse_unknown((*document.keys(definition.Method), "languages", "how", "capability"))
    for key, remedy in _REQUIRED.items():
        it.require(key, remedy=remedy)
    fields = it.fields(definition.Method, others=True)
    device = device_of(fields.get("device", "cuda"))
    known = tuple(one for one in definition.LANGUAGES if one in device.languages)
    least, most = definition.architectures(it.get("capability"), cpu=not device.is_cuda)
    languages = (definition.in_order(known)(it["languages"]) if "languages" in it else ()) or known
    if "how" in it:
        how = it["how"].mapping(f"how of {it.title}")
        how.refuse_unknown(languages)
        fields["how"] = {
            language: definition.text(how[language]) for language in languages if language in how
        }
    return definition.Method(
        id=name, languages=languages, least_capability=least, most_capability=most, **fields
    )


_REQUIRED = {
    "title": "write what people call it",
    "axis": f"write {', '.join(definition.AXES)}",
    "priority": "write 1 to try it first, 2, or 3 to try it last",
    "what": "write what it does and when it helps, in two to four sentences",
}
"""What to do where a key lacks that must be there."""
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Registry:
    """Methods by id, in the order of their files."""

    methods: Mapping[str, definition.Method]
    """By id."""

    def __iter__(self) -> Iterator[definition.Method]:
        return iter(self.methods.values())

    def __len__(self) -> int:
        return len(self.methods)

    def __contains__(self, name: object) -> bool:
        return name in self.methods

    def get(self, name: str) -> definition.Method:
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


def _checked(methods: Mapping[str, definition.Method], places: Mapping[str, str]) -> Registry:
    for method in methods.values():
        _check_names(method, methods, places.get(method.id, "built in"))
    return Registry(methods)


def _check_names(method: definition.Method, methods: Mapping[str, definition.Method], place: str) -> None:
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
