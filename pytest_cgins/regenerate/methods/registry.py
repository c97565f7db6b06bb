"""All methods that are known: ours, and those of a user's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_cgins.config.document import shown
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest
from pytest_cgins.regenerate.methods import reading
from pytest_cgins.regenerate.methods.model import Method

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Registry:
    """Methods by id, in the order of their files."""

    methods: Mapping[str, Method]
    """By id."""

    def __iter__(self) -> Iterator[Method]:
        return iter(self.methods.values())

    def __len__(self) -> int:
        return len(self.methods)

    def __contains__(self, name: object) -> bool:
        return name in self.methods

    def get(self, name: str) -> Method:
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
    return merged((), base=None)


def merged(files: Sequence[Path], *, base: Registry | None) -> Registry:
    """A registry with the methods of more files.

    A method of a later file with the id of an earlier file's takes its place: so that a user can correct ours.

    Args:
        files: of the user, in order.
        base: what they are added to; None for our own files.

    Raises:
        ConfigError: a file is wrong, or one of its methods names another that does not exist.
    """
    methods = dict(base.methods) if base is not None else {}
    places: dict[str, str] = {}
    for file in sorted(DATA.glob("*.yaml")) if base is None else []:
        for method in reading.read(file):
            if method.id in methods:
                raise ConfigError(
                    f'{shown(file)}: method "{method.id}" is in {places[method.id]}, too', remedy="rename one"
                )
            methods[method.id], places[method.id] = method, shown(file)
    for file in files:
        for method in reading.read(file):
            methods[method.id], places[method.id] = method, shown(file)
    for method in methods.values():
        _check_names(method, methods, places.get(method.id, "built in"))
    return Registry(methods)


def _check_names(method: Method, methods: Mapping[str, Method], place: str) -> None:
    for key, names in (("requires", method.requires), ("conflicts", method.conflicts)):
        for name in names:
            if name not in methods or name == method.id:
                raise ConfigError(
                    f'{place}: "{key}" of method "{method.id}" names "{name}", '
                    f"{'itself' if name == method.id else 'which is not a method'}",
                    remedy=nearest(name, _others(methods, method.id))
                    or "name another method, or leave it out",
                )
    if both := set(method.requires) & set(method.conflicts):
        raise ConfigError(
            f'{place}: method "{method.id}" both requires "{min(both)}" and conflicts with it',
            remedy="remove one of the two",
        )


def _others(methods: Iterable[str], name: str) -> list[str]:
    return [other for other in methods if other != name]
