"""Python's parser, one text at a time.

Python 3.11 counts the depth of all trees that are made in one counter: of two threads that parse at the same time, one
can fail with a SystemError for the depth of the other's text.
"""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Iterator

_LOCK = threading.RLock()
# A child would wait for a thread that it does not have.
os.register_at_fork(before=_LOCK.acquire, after_in_child=_LOCK.release, after_in_parent=_LOCK.release)


def module(text: str, filename: str = "<unknown>") -> ast.Module:
    """The tree of a file.

    Raises:
        SyntaxError, ValueError: it is not Python.
        RecursionError, MemoryError: it is nested too deeply.
    """
    with _LOCK:
        return ast.parse(text, filename=filename)


def readable(text: str) -> ast.Module | None:
    """The tree of a file; None if it is not Python, or nested too deeply."""
    try:
        return module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """What a tree imports: the dots, the module, and the name that is taken from it; "" for none of these."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, node.module or "", alias.name) for alias in node.names)


def defined(tree: ast.Module) -> dict[str, ast.stmt]:
    """Functions, classes, imports and assigned names of a module's top level, by name; the last of one name counts."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.split(".")[0]: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def expression(text: str) -> ast.expr:
    """The tree of an expression; raises as `module`."""
    with _LOCK:
        return ast.parse(text, mode="eval").body
