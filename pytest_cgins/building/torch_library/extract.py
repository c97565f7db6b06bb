"""A user's function as source that stands alone: the function, and whatever of its module it refers to.

An exported package must not import the module that an op is from: that imports pytest-cgins, for `mark`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_cgins.building.contracts.source import read
from pytest_cgins.core import syntax
from pytest_cgins.core.errors import SourceError


def standing_alone(function: Callable[..., Any], where: str) -> tuple[str, str]:
    """Source of a module that defines a function alone, and the function's name in it.

    Functions, classes, constants and imports of the module that it needs come along; decorators of
    pytest-cgins are left out.

    Raises:
        SourceError: it needs what cannot be copied, or imports what is neither torch nor Python's own.
    """
    plain = inspect.unwrap(function)
    name = plain.__qualname__
    file = inspect.getsourcefile(plain)
    if file is None or "." in name:
        raise _refusal(where, f"{plain.__module__}.{name} is not at the top level of a Python file")
    text = read(Path(file))
    known = syntax.defined(syntax.module(text))
    needed: list[ast.stmt] = []
    todo, seen = [name], set()
    while todo:
        wanted = todo.pop()
        if wanted in seen or wanted in vars(builtins):
            continue
        seen.add(wanted)
        if wanted not in known:
            raise _refusal(where, f"{file} does not define {wanted!r} at its top level")
        definition = known[wanted]
        if definition not in needed:
            needed.append(definition)
            _require_importable(definition, where, file)
            todo += _names(definition)
    order = sorted(needed, key=lambda definition: definition.lineno)
    copied = [ast.unparse(_without_mark(definition)) for definition in order]
    head = f'"""The op {plain.__module__}.{name}, copied: it tells shapes and gradients."""'
    return "\n\n\n".join([head, "from __future__ import annotations", *copied]) + "\n", name


def _names(definition: ast.stmt) -> list[str]:
    """Names of the module that a definition refers to, its own locals left out."""
    if isinstance(definition, ast.Import | ast.ImportFrom):
        return []
    definition = _without_mark(definition)
    stored: set[str] = set()
    loaded: list[str] = []
    for node in ast.walk(definition):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                loaded.append(node.id)
            else:
                stored.add(node.id)
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node is not definition:
            stored.add(node.name)
    return [name for name in loaded if name not in stored]


def _without_mark(definition: ast.stmt) -> ast.stmt:
    if isinstance(definition, ast.FunctionDef | ast.ClassDef):
        definition.decorator_list = [
            decorator for decorator in definition.decorator_list if "mark" not in ast.unparse(decorator)
        ]
    return definition


def _require_importable(definition: ast.stmt, where: str, file: str) -> None:
    if not isinstance(definition, ast.Import | ast.ImportFrom):
        return
    for level, module, _ in syntax.imports(definition):
        if level or module.split(".")[0] not in {"torch", "math", *sys.stdlib_module_names}:
            raise _refusal(where, f"{file}:{definition.lineno} imports {'.' * level + module!r}")


def _refusal(where: str, what: str) -> SourceError:
    return SourceError(
        f"{where}: the op cannot be copied into a package that needs torch only: {what}",
        remedy="let the function use torch and its own module only, at the module's top level",
    )
