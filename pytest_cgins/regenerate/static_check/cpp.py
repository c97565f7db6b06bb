"""The static check of C++ and CUDA sources, on their tokens: what only text can say, or what saves a build.

What a library calls is judged once it is built, by the probe `libraries`, however the source spells it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from pytest_cgins.regenerate.attempt import Finding
from pytest_cgins.regenerate.static_check.python_tables import by_name
from pytest_cgins.regenerate.static_check.tokens import Directive, Token, Unit, read

_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
REMEDY: dict[str, str] = _DATA["remedies"]
"""What to do instead, by code."""
NAMES = by_name(_DATA["names"])
"""Codes of names that nothing in a kernel has, whether they are called or only named."""
TORCH_HEADERS = re.compile(r"(?:torch|ATen|c10|caffe2)/\S+|torch\.h|pybind11/\S+")
LIBRARY_HEADERS = re.compile(
    r"(?:cublas|cudnn|cusparse|cusolver|cufft|cutensor|nvml|nvblas|rocblas|hip/|dnnl|oneapi/|onednn|mkl|cblas|lapack|"
    r"openblas|Eigen/|armadillo|tbb/|arm_compute).*"
)
OTHER_HEADERS = [(re.compile(pattern), code) for code, pattern in _DATA["headers"].items()]
"""Headers that are for what a kernel may not do, with its code."""


NAMED = re.compile(r'"([^"]+)"|<([^>]+)>')
LINES = frozenset({"include", "include_next", "import"})


def _of_include(
    directive: Directive, path: str, *, contract: str, allow_libraries: bool, headers: Collection[str]
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
    elif TORCH_HEADERS.fullmatch(name):
        if contract != "torch-extension":
            yield "torch-in-launcher", shown
    elif LIBRARY_HEADERS.fullmatch(name):
        if not allow_libraries:
            yield "vendor-library", shown
    else:
        for pattern, code in OTHER_HEADERS:
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


ATTRIBUTES = frozenset({"constructor", "destructor", "ifunc", "weakref", "init_priority", "alias", "weak"})
ATTRIBUTES |= {f"__{name}__" for name in ATTRIBUTES}
PRAGMAS = re.compile(
    r"(?:GCC|clang)?\s*(?:plugin|dependency|include_alias|redefine_extname|weak|init|fini|comment)\b"
)
PLACES = re.compile(r"/proc/|/dev/shm|/sys/class|\.cgins\b|cgins\.yaml")
RECOGNITION = re.compile(r"pytest|INVOCATION_ID|cgins_worker", re.IGNORECASE)
SECTIONS = re.compile(r"\.(?:init_array|fini_array|preinit_array|ctors|dtors|init|fini)\b")


TORCH = frozenset({"at", "torch", "c10", "pybind11"})


def check(
    path: str, text: str, *, contract: str, allow_libraries: bool, headers: Collection[str]
) -> list[Finding]:
    """Look through one C++ or CUDA source; the arguments are those of the package's `check`."""
    unit = read(text)
    found: list[tuple[int, str, str]] = []
    for directive in unit.directives:
        against = _of_include(
            directive, path, contract=contract, allow_libraries=allow_libraries, headers=headers
        )
        found += [(directive.line, code, words) for code, words in against]
        if directive.name == "pragma" and PRAGMAS.match(" ".join(token.text for token in directive.tokens)):
            found.append((directive.line, "static-code", f"#pragma {directive.tokens[0].text}"))
    for tokens in (unit.code, *(each.tokens for each in unit.directives if each.name not in LINES)):
        found += _names(tokens, contract)
    found += _strings(unit)
    return [
        Finding(code=code, file=path, line=line, message=f"{words}: {REMEDY[code]}")
        for line, code, words in found
    ]


def _names(tokens: Sequence[Token], contract: str) -> Iterator[tuple[int, str, str]]:
    for index, token in enumerate(tokens):
        name, before, after = token.text, _at(tokens, index - 1), _at(tokens, index + 1)
        if token.kind != "name" or before in (".", "->"):
            continue
        if name in ATTRIBUTES and _in_attribute(tokens, index):
            yield token.line, "static-code", f"the attribute {name}"
        elif RECOGNITION.search(name):
            yield token.line, "self-recognition", name
        elif name in NAMES and (before != "::" or _at(tokens, index - 2) == "std"):
            yield token.line, NAMES[name], name
        elif contract != "torch-extension" and after == "::" and before != "::" and name in TORCH:
            yield token.line, "torch-in-launcher", f"{name}::"
        elif name == "TORCH_LIBRARY_IMPL" and _at(tokens, index + 2) == "aten":
            yield token.line, "patches-torch", "TORCH_LIBRARY_IMPL(aten, …)"


def _at(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def _in_attribute(tokens: Sequence[Token], index: int) -> bool:
    before = [token.text for token in tokens[max(index - 12, 0) : index]]
    return any(word in before for word in ("__attribute__", "__attribute")) or any(
        pair == ("[", "[") for pair in pairwise(before)
    )


def _strings(unit: Unit) -> Iterator[tuple[int, str, str]]:
    for token in unit.strings():
        if RECOGNITION.search(token.text):
            yield token.line, "self-recognition", f'the text "{_short(token.text)}"'
        elif PLACES.search(token.text) or ".incbin" in token.text:
            yield token.line, "file-access", f'the text "{_short(token.text)}"'
        elif SECTIONS.fullmatch(token.text.strip()):
            yield token.line, "static-code", f'the section "{_short(token.text)}"'


def _short(text: str) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "…"
