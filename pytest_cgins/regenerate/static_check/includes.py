"""What a C++ or CUDA source may include."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator

from pytest_cgins.regenerate.static_check import forbidden
from pytest_cgins.regenerate.static_check.tokens import Directive

NAMED = re.compile(r'"([^"]+)"|<([^>]+)>')
LINES = frozenset({"include", "include_next", "import"})


def check(
    directive: Directive,
    path: str,
    *,
    contract: str,
    allow_libraries: bool,
    headers: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Code and words of what is wrong with an include, if anything is."""
    if directive.name == "embed":
        yield "file-access", "#embed reads a file"
        return
    if directive.name not in LINES:
        return
    named = NAMED.fullmatch(directive.rest.strip())
    if named is None or directive.name != "include":
        yield "include", f"an include that does not name its header: {directive.rest.strip()[:80]}"
        return
    name = named[1] or named[2]
    found = _of_name(name, path, headers)
    if found == "own":
        return
    shown = f"the include of {name[:120]}"
    if found:
        yield "include", f"{shown}, {found}"
    elif forbidden.TORCH_HEADERS.fullmatch(name):
        if contract != "torch-extension":
            yield "torch-in-launcher", shown
    elif forbidden.LIBRARY_HEADERS.fullmatch(name):
        if not allow_libraries:
            yield "vendor-library", shown
    else:
        for pattern, code in forbidden.OTHER_HEADERS:
            if pattern.fullmatch(name):
                yield code, shown


def _of_name(name: str, path: str, headers: Collection[str]) -> str:
    """`own` for a header of the project, what is wrong with the name, or "" for a header of the system."""
    name = name.replace("\\", "/")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "an absolute path"
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    if beside == path:
        return "the file itself"
    if beside in headers or (
        ".." not in name.split("/")
        and any(header.endswith("/" + name) or header == name for header in headers)
    ):
        return "own"
    return "which is none of this project's headers" if ".." in name.split("/") else ""
