"""GitHub's own description of its REST API as a judge of requests and answers, and as a mould for answers."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jsonschema import Draft202012Validator

DESCRIPTION: dict[str, Any] = json.loads(Path(__file__).with_name("openapi.json").read_bytes())
SCHEMAS: dict[str, Any] = DESCRIPTION["components"]["schemas"]
SLASHED = ("ref", "basehead", "name")
"""Parameters of paths that may have slashes: refs, and names of labels."""
WHEN = "2026-01-31T12:00:00Z"


def operation(method: str, path: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The operation of a request, and the parameters in its path."""
    for template, methods in DESCRIPTION["paths"].items():
        if (match := _pattern(template).fullmatch(path)) and method.lower() in methods:
            return methods[method.lower()] | {"template": template}, match.groupdict()
    return None


@cache
def _pattern(template: str) -> re.Pattern[str]:
    pattern = re.sub(r"\\\{(\w+)\\\}", lambda one: f"(?P<{one[1]}>{'.+' if one[1] in SLASHED else '[^/]+'})", re.escape(template))  # fmt: skip
    return re.compile(pattern)


def request_faults(found: dict[str, Any], query: str, body: Any) -> list[str]:
    """What is wrong with a request; GitHub ignores names that it does not know, which helps nobody."""
    known = {one["name"]: one for one in found["parameters"] if one["in"] == "query"}
    faults = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            faults.append(f"there is no query parameter {name}")
            continue
        schema = known[name]["schema"]
        typed = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
        faults += errors(schema, typed)
    if "requestBody" not in found:
        return faults + (["a body, where none belongs"] if body is not None else [])
    if body is None and not found["bodyRequired"]:
        return faults
    schema = found["requestBody"]
    if isinstance(body, dict):
        faults += [f"there is no field {name}" for name in body if name not in schema.get("properties", body)]
    return faults + errors(schema, body)


def answer_faults(found: dict[str, Any], status: int, body: Any) -> list[str]:
    """What is wrong with an answer."""
    if str(status) not in found["responses"]:
        # Not all that GitHub answers is written down for each operation.
        return errors({"$ref": "#/components/schemas/basic-error"}, body)
    schema = found["responses"][str(status)]
    if schema and "oneOf" in schema:
        # Kinds of errors of which one allows all that another does.
        schema = {"anyOf": schema["oneOf"]}
    return errors(schema, body)


def errors(schema: dict[str, Any] | None, value: Any) -> list[str]:
    if schema is None:
        return []
    return [
        f"{one.json_path}: {one.message[:200]}" for one in _validator(json.dumps(schema)).iter_errors(value)
    ]


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": {"schemas": SCHEMAS}})


def filled(name: str, known: dict[str, Any], *, url: str = "https://twin.example") -> dict[str, Any]:
    """An object of a named schema: what is known of it, and for all else that must be there the plainest value."""
    schema = SCHEMAS[name]
    return {
        one: _plainest(schema["properties"][one], url)
        for one in schema.get("required", [])
        if one not in known
    } | known


def _plainest(schema: dict[str, Any], url: str) -> Any:
    if "$ref" in schema:
        return _plainest(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]], url)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            options = schema[choice]
            return None if {"type": "null"} in options else _plainest(options[0], url)
    kind = schema.get("type")
    if isinstance(kind, list):
        return None
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        required = schema.get("required", [])
        return {one: _plainest(schema["properties"][one], url) for one in required}
    if kind == "string":
        return {"date-time": WHEN, "uri": url, "email": "twin@twin.example"}.get(schema.get("format", ""), "")
    return {"integer": 0, "number": 0, "boolean": False, "array": []}[str(kind)]
