"""Types and defaults of recorded values in the schema language."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_cgins.building.contracts.schema import SchemaArgument
from pytest_cgins.core.model import Value
from pytest_cgins.regenerate.prompts import calls

_SCALARS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "dtype": "ScalarType"}


def word_of(present: Sequence[Value], known: SchemaArgument | None) -> str:
    """The type of some values, None apart; that of torch's schema where it is wider and fits them."""
    own = {_of_value(value) for value in present}
    if None in own:
        return ""
    words = {word for word in own if word}
    declared = (
        "" if known is None else known.type + ("[]" if known.list else "") + ("?" if known.optional else "")
    )
    if not words:
        return declared
    if declared and words <= _fitting(declared.rstrip("?")):
        return declared
    if len(words) == 1:
        return next(iter(words))
    if words <= {"int", "float", "bool"}:
        return "Scalar"
    if words <= {"int", "int[]"}:
        return "int[]"
    return ""


def _fitting(declared: str) -> set[str]:
    """Types of values that an argument of a declared type takes."""
    wider = {
        "Scalar": {"int", "float", "bool"},
        "float": {"int"},
        "int[]": {"int"},
        "float[]": {"float", "int[]", "int"},
    }
    return {declared} | wider.get(declared, set())


def _of_value(value: Value) -> str | None:
    """Type of one value; None where the schema language has none."""
    if value.kind == "tensor":
        return "Tensor"
    if value.kind in _SCALARS:
        return _SCALARS[value.kind]
    if value.kind == "generator":
        return "Generator"
    if value.kind in ("tuple", "list", "size"):
        items = {_of_value(item) for item in value.items if item.kind != "none"}
        if items == {"Tensor"}:
            return "Tensor?[]" if any(item.kind == "none" for item in value.items) else "Tensor[]"
        if items <= {"int"}:
            return "int[]"
        if items <= {"int", "float"}:
            return "float[]"
        return "bool[]" if items == {"bool"} else None
    return None


def default_text(value: Value) -> str:
    """A recorded default as a schema line writes it; "" for what such a line cannot hold."""
    if value.kind == "none":
        return "None"
    if value.kind == "float":
        return calls.number(str(value.value))
    if value.kind in ("int", "bool"):
        return str(value.value)
    text = str(value.value)
    return f"'{text}'" if value.kind == "str" and text.isidentifier() else ""
