"""JSON Schemas of the documents that are published, from their dataclasses."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from pytest_cgins.core.document_base import Document


def published_schema(cls: type) -> dict[str, Any]:
    """The `json_schema` of a class, with its dialect."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema(cls)}


def json_schema(cls: type) -> dict[str, Any]:
    """JSON Schema (2020-12) of a dataclass, with the field docstrings as descriptions."""
    settings = Document.__pydantic_config__
    # For a schema alone: to find them in the sources takes four times as long as everything else about an adapter.
    settings["use_attribute_docstrings"] = True
    try:
        return TypeAdapter(cls).json_schema()
    finally:
        del settings["use_attribute_docstrings"]
