"""A recorded call as Python code: a function `run` of its tensors and numbers that calls the op."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.model import Argument, OpCall, Value
from pytest_cgins.recording.importers.references import imported_code


@dataclass(slots=True)
class Call:
    """What a call needs, and the code that makes it."""

    code: str = ""
    """A module with the function `run`."""
    parameters: list[str] = field(default_factory=list)
    """Of `run`, in order."""
    tensors: dict[str, int] = field(default_factory=dict)
    """Index of the argument tensor, by parameter."""
    scalars: dict[str, bool | int | float] = field(default_factory=dict)
    """Value of each parameter that is a number."""


def call_of(call: OpCall) -> Call:
    """The code for a call.

    Raises:
        RecordError: if it cannot be said by a function of tensors and numbers.
    """
    if "@" in call.op or any(argument.passed == "state" for argument in call.arguments):
        raise RecordError("a backward or a module is not a function of its arguments alone")
    made = Call()
    passed = [argument for argument in call.arguments if argument.passed != "default"]
    arguments = [_passed(argument, made) for argument in passed]
    made.code = _module(call.op, arguments, made)
    return made


def _passed(argument: Argument, made: Call) -> str:
    # A pack's names become code here, and a pack may be anybody's.
    if argument.passed == "keyword" and (
        not argument.name.isidentifier() or keyword.iskeyword(argument.name)
    ):
        raise RecordError(f"{argument.name[:80]!r} is not a parameter name")
    text = _render(argument.value, _identifier(argument.name), made)
    return text if argument.passed == "positional" else f"{argument.name}={text}"


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"{text}_" if keyword.iskeyword(text) or not text.isidentifier() else text


def _render(value: Value, name: str, made: Call) -> str:
    """The expression of an argument; tensors and numbers become parameters, all else is written out."""
    if value.kind == "tensor":
        index = int(value.value or 0)
        # A tensor that is passed twice is one parameter.
        known = next((key for key, other in made.tensors.items() if other == index), None)
        if known is None:
            made.parameters.append(name)
            made.tensors[name] = index
        return known or name
    if value.kind in ("bool", "int", "float"):
        number = float.fromhex(str(value.value)) if value.kind == "float" else value.value
        assert isinstance(number, bool | int | float)
        # JSON has no infinities.
        if isinstance(number, float) and number - number != 0:
            return f"float({str(number)!r})"
        made.parameters.append(name)
        made.scalars[name] = number
        return name
    if value.kind in ("tuple", "list", "size", "dict", "slice"):
        return _container(value, name, made)
    return _literal(value)


def _container(value: Value, name: str, made: Call) -> str:
    holds_tensors = "tensor" in _kinds(value)
    items = [
        _render(item, f"{name}_{number}", made) if holds_tensors else _written(item)
        for number, item in enumerate(value.items)
    ]
    if value.kind == "dict":
        return "{" + ", ".join(f"{key!r}: {item}" for key, item in zip(value.keys, items, strict=True)) + "}"
    if value.kind == "slice":
        return f"slice({', '.join(items)})"
    listed = ", ".join(items)
    return f"[{listed}]" if value.kind == "list" else f"({listed}{',' * (len(items) == 1)})"


def _kinds(value: Value) -> set[str]:
    return {value.kind}.union(*(_kinds(item) for item in value.items)) if value.items else {value.kind}


def _written(value: Value) -> str:
    """A value without tensors, with its numbers written out: sizes and the like."""
    if value.kind in ("bool", "int"):
        return repr(value.value)
    if value.kind == "float":
        number = float.fromhex(str(value.value))
        return repr(number) if number - number == 0 else f"float({str(number)!r})"
    if value.kind in ("tuple", "list", "size", "dict", "slice"):
        return _container(value, "", Call())
    return _literal(value)


def _literal(value: Value) -> str:
    if value.kind == "none":
        return "None"
    if value.kind == "ellipsis":
        return "..."
    if value.kind == "str":
        return repr(value.value)
    if value.kind in ("dtype", "memory_format", "layout"):
        return f"torch.{value.value}"
    if value.kind == "complex":
        real, imaginary = str(value.value).split()
        return repr(complex(float.fromhex(real), float.fromhex(imaginary)))
    raise RecordError(f"an argument is a {value.kind}, which a reference there cannot say")


def _module(op: str, arguments: list[str], made: Call) -> str:
    parameters = ", ".join(made.parameters)
    if op.startswith("torch."):
        return f"import torch\n\n\ndef run({parameters}):\n    return {op}({', '.join(arguments)})\n"
    module, _, function = op.rpartition(".")
    code = _source(module)
    if function == "run" and _plain(arguments) == made.parameters:
        return code
    called = "_run" if function == "run" else function
    kept = "\n\n_run = run\n" if function == "run" else ""
    return f"{code}{kept}\n\ndef run({parameters}):\n    return {called}({', '.join(arguments)})\n"


def _plain(arguments: list[str]) -> list[str]:
    """Arguments that are passed under their own names."""
    return [text.partition("=")[2] or text for text in arguments]


def _source(module: str) -> str:
    """Source of a project's module, found without importing anything."""
    for path in _places(module):
        if path.is_file():
            return imported_code(path.read_text(encoding="utf-8"))
    raise RecordError(
        f"the source of {module} is not found", remedy="export from the folder that the op is imported from"
    )


def _places(module: str) -> Iterator[Path]:
    inside = Path(*module.split("."))
    for root in dict.fromkeys(["", *sys.path]):
        yield Path(root) / inside.with_suffix(".py")
        yield Path(root) / inside / "__init__.py"
