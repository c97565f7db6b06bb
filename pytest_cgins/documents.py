"""Reading and writing the dataclasses of `model` as JSON, and their published JSON Schemas.

Reading is strict: no coercion, no unknown keys, depth and size bounded before parsing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

# Making one takes milliseconds.
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(cls: type[T]) -> TypeAdapter[T]:
    if cls not in _ADAPTERS:
        from pydantic import TypeAdapter

        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def dump(document: object, *, indent: int | None = None) -> str:
    """JSON text of a `model` dataclass."""
    return _adapter(type(document)).dump_json(document, indent=indent).decode()


def dump_python(document: object) -> Any:
    """The same as plain dicts, lists, strings and numbers."""
    return _adapter(type(document)).dump_python(document, mode="json")


def load(cls: type[T], text: str | bytes) -> T:
    """Parse and validate JSON text.

    Raises:
        ValueError: on anything that the dataclass does not allow; the message names each field.
    """
    return _adapter(cls).validate_json(text, strict=True)


def load_python(cls: type[T], value: Any) -> T:
    """Validate plain dicts and lists, as `dump_python` gives them."""
    import json

    return load(cls, json.dumps(value))


def json_schema(cls: type[T]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a `model` dataclass, with the field docstrings as descriptions."""
    return _adapter(cls).json_schema()
