"""What all data classes share that are written as JSON."""

from __future__ import annotations

from typing import Any, ClassVar


class Document:
    """Base of everything that is written as JSON: unknown keys are refused on reading."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
