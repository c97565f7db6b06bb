"""A YAML document whose every value knows its line, read without building any object from its tags."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest, nearest_path, shown

if TYPE_CHECKING:
    from yaml import Node

Word = TypeVar("Word", bound=str)
Number = TypeVar("Number", int, float)
T = TypeVar("T")
Wrong = tuple[str, str] | None
"""What is wrong and the remedy; None if nothing is."""

MAX_NBYTES = 1 << 20
MAX_NODES = 100_000
MAX_DEPTH = 32
MAX_DIGITS = 18
SCALARS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def read(
    file: Path, *, alone: bool = False, content: bytes | None = None, title: str = "the file"
) -> Section:
    """The top-level mapping of a YAML file, or of the content that is given in its place.

    `alone` it is read without the files that it names.

    Raises:
        ConfigError: it cannot be read, is too large, is not YAML, or is not a mapping.
    """
    import yaml

    name = shown(file)
    try:
        node = _composed(_text(file, name, content), name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        raise ConfigError(
            f"{where}: not YAML: {error.problem or error.context}", remedy="correct it"
        ) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # "\\UFFFFFFFF" is no character
        raise ConfigError(f"{name}: not YAML: {error}", remedy="correct it") from error
    if node is None:
        raise ConfigError(f"{name}: empty", remedy="start with version: 1, traces and kernels")
    return Section(file, name, node, title, line=1, alone=alone)


@lru_cache(maxsize=4)  # several rooms read one file, and a thousand kernels take seconds
def _composed(text: str, name: str) -> Any:
    return _loader()(text, name).get_single_node()


def _text(file: Path, name: str, content: bytes | None) -> str:
    """Content of a regular file; a FIFO would be waited for, and a device has no end."""
    try:
        status = file.stat() if content is None else None
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{name}: not a regular file", remedy="put a YAML file there")
        if (len(content or b"") if status is None else status.st_size) > MAX_NBYTES:
            raise ConfigError(
                f"{name}: larger than {MAX_NBYTES >> 20} MiB", remedy="a configuration is a few kilobytes"
            )
        return (file.read_bytes() if content is None else content).decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{name}: {error.strerror}", remedy="create it, or name the folder where it lies"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 at byte {error.start}", remedy="save it as UTF-8") from error


@cache
def _loader() -> Any:
    """A loader that stops at the first node too many, uses of aliases included: YAML takes milliseconds a kilobyte."""
    from yaml import AliasEvent, MappingNode, SafeLoader, ScalarNode, SequenceNode

    kinds = {"seq": SequenceNode, "map": MappingNode, **dict.fromkeys(SCALARS, ScalarNode)}

    # Not the C parser: libyaml's recursion on deeply nested input cannot be caught.
    class Loader(SafeLoader):
        def __init__(self, text: str, file: str) -> None:
            super().__init__(text)
            self.file = file
            self.count = self.depth = 0
            self.counts: dict[str, int] = {}

        def compose_node(self, parent: Node | None, index: Any) -> Node | None:
            event, before = self.peek_event(), self.count  # type: ignore[no-untyped-call]
            is_alias = isinstance(event, AliasEvent) and event.anchor in self.anchors
            # Within its own anchor it would have no end.
            self.count += self.counts.get(event.anchor, MAX_NODES) if is_alias else 1
            self.depth += 1
            if self.count > MAX_NODES or self.depth > MAX_DEPTH + 1:
                problem = f"more than {MAX_NODES} values or {MAX_DEPTH} levels"
                self.fail(event, problem, "use fewer values, levels or aliases")
            node = super().compose_node(parent, index)
            self.depth -= 1
            if node and not is_alias:
                self.counts[event.anchor] = self.count - before
                self.check(node)
            return node

        def check(self, node: Node) -> None:
            if not isinstance(node, kinds.get(node.tag.rpartition(":")[2], object)):  # as in !!str [a]
                self.fail(node, f"the tag {node.tag} does not fit its value", "remove the tag")
            if isinstance(node, ScalarNode) and any("\ud800" <= letter <= "\udfff" for letter in node.value):
                problem = f"{node.value[:80]!a} has an unpaired surrogate"
                self.fail(node, problem, "write the character itself")

        def fail(self, at: Any, problem: str, remedy: str) -> NoReturn:
            raise ConfigError(f"{self.file}:{at.start_mark.line + 1}: {problem}", remedy=remedy)

    return Loader


@dataclass(frozen=True, slots=True)
class Value:
    """One value of the document."""

    section: Section
    """Where it stands."""
    key: str
    """Its key there."""
    node: Node
    """What YAML parsed."""
    line: int
    """Line of the key, or of the list item; 1-based."""

    @property
    def label(self) -> str:
        """Its key and section, as messages name it."""
        return f'"{self.key}" in {self.section.title}'

    def fail(self, problem: str, *, remedy: str) -> NoReturn:
        """Raise a ConfigError that leads with file and line."""
        raise ConfigError(f"{self.section.name}:{self.line}: {problem}", remedy=remedy)

    def refuse(self, why: str, *, remedy: str) -> NoReturn:
        """Raise a ConfigError with the value as it is written, and why it cannot be."""
        self.fail(f"{self.label} is {self.scalar() or 'empty'}, {why}", remedy=remedy)

    def check(self, wrong: Wrong, subject: str = "") -> None:
        """Raise a ConfigError about the subject, by default the value, if something is wrong with it."""
        if wrong:
            self.fail(f"{subject or self.label} {wrong[0]}", remedy=wrong[1])

    def _wrong(self, wanted: str, form: str = "") -> NoReturn:
        tag = self.node.tag.removeprefix("tag:yaml.org,2002:")
        got = {"map": "a mapping", "seq": "a list"}.get(tag) or SCALARS.get(tag, f"a value with tag {tag}")
        written = self.node.value[:80] if tag in SCALARS else ""
        value = f" ({written})" if written.strip() and written.isprintable() else ""
        self.fail(f"{self.label} is {got}{value}, not {wanted}", remedy=f"write {wanted}{form}")

    def is_a(self, *tags: str) -> bool:
        """Whether YAML takes it for a `str`, `int`, `float`, `bool`, `null`, `seq` or `map`."""
        return any(self.node.tag == f"tag:yaml.org,2002:{tag}" for tag in tags)

    def text(self) -> str:
        """A non-empty string."""
        if not self.is_a("str") or not self.node.value.strip():
            self._wrong("text that is not empty")
        return str(self.node.value)

    def scalar(self) -> str:
        """Any single value, as it is written."""
        if not self.is_a(*SCALARS):
            self._wrong("a single value")
        return str(self.node.value)

    def choice(self, *known: Word, otherwise: str = "") -> Word:
        """One of a few words; `otherwise` tells of a value that is no word and also possible."""
        text = self.text()
        if text not in known:
            self.fail(
                f'{self.label} is "{text}"',
                remedy=nearest(text, known)
                or "write " + " or ".join(filter(None, [", ".join(known[:-1]), known[-1], otherwise])),
            )
        return next(word for word in known if word == text)

    def boolean(self) -> bool:
        """`true` or `false`."""
        if not self.is_a("bool"):
            self._wrong("true or false")
        return str(self.node.value).lower() in ("true", "yes", "on")

    def integer(self) -> int:
        """A whole number in decimal digits."""
        if not self.is_a("int") or not str(self.node.value).isdecimal():
            self._wrong("a whole number of at least 0")
        if len(self.node.value) > MAX_DIGITS:
            self._wrong(f"a whole number of at most {MAX_DIGITS} digits")
        return int(self.node.value)

    def amount(self) -> float:
        """A finite number that is not negative. YAML 1.1 takes `1e-3` for text; here it is a number."""
        try:
            number = float(self.scalar())
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < 0:
            self._wrong("a finite number of at least 0")
        return number

    def items(self) -> list[Value]:
        """The items of a list."""
        if not self.is_a("seq"):
            self._wrong("a list", f", {self.key}: [A, B]")
        return [
            Value(self.section, self.key, item, int(item.start_mark.line) + 1) for item in self.node.value
        ]

    def texts(self) -> tuple[str, ...]:
        """A list of non-empty strings."""
        return tuple(item.text() for item in self.items())

    def distinct(
        self, read: Callable[[Value], T], same: Callable[[T], object] = lambda item: item
    ) -> tuple[T, ...]:
        """The items of a list, no two of which are the same."""
        results: list[T] = []
        lines: dict[object, int] = {}
        for item in self.items():
            results.append(read(item))
            if (key := same(results[-1])) in lines:
                what = f"{item.node.value[:80]!a}" if item.is_a(*SCALARS) else "the same"
                item.fail(
                    f"{item.label} has {what} twice, first in line {lines[key]}", remedy="write it once"
                )
            lines[key] = item.line
        return tuple(results)

    def mapping(self, title: str = "") -> Section:
        """A nested mapping; `title` names it in messages, by default with its key and where that stands."""
        if not self.is_a("map"):
            self._wrong("a mapping", f", {self.key}: {{KEY: VALUE}}")
        section = self.section
        title = title or f"{self.key} of {section.title}"
        return Section(section.file, section.name, self.node, title, line=self.line, alone=section.alone)

    def path(self, *, kind: str = "file") -> Path:
        """An existing file or folder, or any file in a document that is read alone; it starts at its folder."""
        text = self.text()
        path = Path(os.path.normpath(self.section.file.parent / text))
        # os.path answers False for names that no file can have, where Path may raise.
        is_there = os.path.isdir if kind == "folder" else os.path.isfile
        exists = is_there(path) or (kind == "file" and self.section.alone)
        if not exists:
            self.fail(
                f"no such {kind}: {text}",
                remedy=nearest_path(path, text) or f"the path starts at {self.section.file.parent}",
            )
        return path


Reader = Callable[[Value], Any]


@cache
def readers(cls: type) -> Mapping[str, tuple[str, Reader]]:
    """By field of a dataclass that is `Annotated[TYPE, READER]` or `Annotated[TYPE, READER, KEY]`: its key and reader."""
    hints = get_type_hints(cls, include_extras=True)
    marks = {field: hint.__metadata__ for field, hint in hints.items() if get_origin(hint) is Annotated}
    return {field: ((*mark[1:], field)[0], mark[0]) for field, mark in marks.items()}


def keys(cls: type) -> tuple[str, ...]:
    """The keys of such a dataclass."""
    return tuple(dict.fromkeys(key for key, _ in readers(cls).values()))


class Section(dict[str, Value]):
    """A mapping of the document, whose keys have been checked for being text and unique."""

    def __init__(
        self, file: Path, name: str, node: Node, title: str, *, line: int, alone: bool = False
    ) -> None:
        super().__init__()
        self.file, self.name, self.alone, self.title, self.line = file, name, alone, title, line
        if node.tag != "tag:yaml.org,2002:map":
            self.fail(f"{title} is not a mapping", remedy="write KEY: VALUE lines")
        for key, value in node.value:
            item = Value(self, str(key.value), value, int(key.start_mark.line) + 1)
            if key.tag.rpartition(":")[2] not in SCALARS:
                item.fail(f"a key of {title} is not text", remedy="quote it, or correct it")
            if item.key in self:
                item.fail(
                    f'key "{item.key}" of {title} is there twice, first in line {self[item.key].line}',
                    remedy="remove or rename one of them",
                )
            self[item.key] = item

    def require(self, key: str, *, remedy: str) -> Value:
        """The value of a key that must be there."""
        value = self.get(key)
        if value is None:
            self.fail(f'{self.title} has no "{key}"', remedy=remedy)
        return value

    def refuse_without_effect(self, needs: Mapping[str, tuple[bool, str]], because: str) -> None:
        """Refuse keys that do nothing here; by key: whether it has an effect, and what it goes with."""
        for key, (has_effect, needed) in needs.items():
            if key in self and not has_effect:
                self[key].fail(
                    f'"{key}" has no effect in {self.title}: {because}',
                    remedy=f"remove it; it goes with {needed}",
                )

    def fields(self, cls: type, *, others: bool = False) -> dict[str, Any]:
        """The fields of a dataclass whose `keys` are there; unless allowed, other keys are refused."""
        if not others:
            self.refuse_unknown(keys(cls))
        return {field: read(self[key]) for field, (key, read) in readers(cls).items() if key in self}

    def fail(self, problem: str, *, remedy: str) -> NoReturn:
        """Raise a ConfigError that leads with file and line."""
        raise ConfigError(f"{self.name}:{self.line}: {problem}", remedy=remedy)

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Refuse keys that have no meaning here, naming the nearest one that has."""
        known = tuple(known)
        for key, value in self.items():
            if key not in known:
                value.fail(
                    f'unknown key "{key}" in {self.title}',
                    remedy=nearest(key, known) or f"known keys: {', '.join(known)}",
                )


def between(
    least: int, most: int, read: Callable[[Value], Number] = Value.integer
) -> Callable[[Value], Number]:
    """A reader of numbers between two others, or one of them."""

    def number(value: Value) -> Number:
        number = read(value)
        if not least <= number <= most:
            value.refuse(f"not within {least} to {most}", remedy=f"write {least} to {most}")
        return number

    return number


def one_of(words: Any) -> Reader:
    """A reader of the words of a `Literal`."""
    return lambda value: value.choice(*get_args(words))
