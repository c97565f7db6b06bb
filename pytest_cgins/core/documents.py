"""Reading and writing the dataclasses of `model` as JSON.

Reading is strict: no coercion, no unknown keys; the parser itself bounds the depth, and callers the size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_cgins.core.text import counted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

MAX_COMPLAINTS = 100
"""More than these are counted only: to put each into words takes longer than to find it."""

_PIECE = 2**18
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_MARKS = bytes(set(range(256)) - set(b'"[]{},'))

# Making one takes milliseconds.
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(cls: type[T]) -> TypeAdapter[T]:
    if cls not in _ADAPTERS:
        from pydantic import TypeAdapter

        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def prepare(*classes: type) -> None:
    """Make now what reads and writes these dataclasses, so that processes which are forked later have it."""
    for cls in classes:
        _adapter(cls)


def dump(document: object, *, indent: int | None = None) -> str:
    """JSON text of a `model` dataclass; lone surrogates, which no JSON can have, are spelled out."""
    import json

    from pydantic_core import PydanticSerializationError

    try:
        return _adapter(type(document)).dump_json(document, indent=indent).decode()
    except PydanticSerializationError:
        return _spelled(json.dumps(dump_python(document), ensure_ascii=False, indent=indent))


def dump_python(document: object) -> Any:
    """The document as plain dicts, lists, strings and numbers."""
    return _adapter(type(document)).dump_python(document, mode="json")


def load(cls: type[T], text: str | bytes) -> T:
    """Parse and validate JSON text.

    Raises:
        ValueError: on anything that the dataclass does not allow; the message names each field.
    """
    from pydantic import ValidationError

    try:
        return _adapter(cls).validate_json(text, strict=True)
    except ValidationError as error:
        if (count := error.error_count()) <= MAX_COMPLAINTS:
            raise
    raise ValueError(
        f"{counted(count, 'value is', 'values are')} wrong for a {getattr(cls, '__name__', cls)}"
    )


def renamed(document: T, names: Mapping[str, str]) -> T:
    """The same document with other names for folders that its texts speak of: they are gone when somebody reads it."""
    import json

    text = dump(document)
    for here, there in names.items():
        old, new = (json.dumps(name, ensure_ascii=False)[1:-1] for name in (here, there))
        text = text.replace(old, new)
    return load(type(document), text)


def complaint(error: ValueError) -> str:
    """The first thing that `load` has against a text, and in which field, without the value: that may be anybody's."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    return ": ".join(filter(None, [field, first["msg"].removeprefix("Value error, ")]))


def extent(text: bytes, most: int) -> tuple[int, int]:
    """About how many values JSON text in UTF-8 has, and how deep it is nested, found without parsing it.

    Counting ends soon after `most` values. Of what is not JSON the depth is at least what a parser meets before it
    finds out. Takes memory for a few copies of the text.
    """
    # Escapes first, so that each quote that is left begins or ends a string.
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    values = depth = deepest = 0
    quote = b""
    for start in range(0, len(marks), _PIECE):
        # Each string of the piece is taken out; one that goes on in the next leaves its first quote.
        piece = re.sub(rb'"[^"]*"', b"", quote + marks[start : start + _PIECE])
        piece, quote, _ = piece.partition(b'"')
        values += len(piece)
        for mark in piece.replace(b",", b""):
            depth += 1 if mark in b"[{" else -1
            deepest = max(deepest, depth)
        if values > most:
            break
    return values, deepest


def load_python(cls: type[T], value: Any) -> T:
    """Validate plain dicts and lists, as `dump_python` gives them."""
    import json

    from pydantic_core import PydanticSerializationError, to_json

    try:
        text: str | bytes = to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:
        text = _spelled(json.dumps(value, ensure_ascii=False))
    return load(cls, text)


def _spelled(text: str) -> str:
    """JSON text in which bytes that were no characters are spelled out."""
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)
