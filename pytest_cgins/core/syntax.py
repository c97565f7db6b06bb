"""Python's parser, one text at a time.

Python 3.11 counts the depth of all trees that are made in one counter: of two threads that parse at the same time, one
can fail with a SystemError for the depth of the other's text.
"""

from __future__ import annotations

import ast
import os
import threading

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


def expression(text: str) -> ast.expr:
    """The tree of an expression; raises as `module`."""
    with _LOCK:
        return ast.parse(text, mode="eval").body
