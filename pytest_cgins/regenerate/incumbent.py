"""What a project's own kernel already uses: a candidate may use that too."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from pytest_cgins.core import syntax

_LIBRARIES = re.compile(
    r"#\s*include\s*[<\"](?:cublas|cudnn|cusparse|cufft|cusolver|mkl|cblas|dnnl|oneapi)", re.IGNORECASE
)


def imports_of(files: Mapping[str, str]) -> frozenset[str]:
    """Modules that Python sources import, by their whole names; relative ones keep their dots."""
    found: set[str] = set()
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        try:
            tree = syntax.module(text)
        except (SyntaxError, ValueError, RecursionError):
            continue  # an incumbent that is broken allows nothing
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add("." * node.level + (node.module or ""))
    return frozenset(found)


def uses_libraries(files: Mapping[str, str]) -> bool:
    """Whether a source includes a vendor's library of ready kernels."""
    return any(_LIBRARIES.search(text) for text in files.values())
