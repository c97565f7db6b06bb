"""The static check of C++ and CUDA sources, on their tokens: what only text can say, or what saves a build.

What a library calls is judged once it is built, by the probe `libraries`, however the source spells it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from pytest_cgins.regenerate.model import Finding
from pytest_cgins.regenerate.static_check import forbidden, includes
from pytest_cgins.regenerate.static_check.tokens import Token, Unit, read

ATTRIBUTES = frozenset({"constructor", "destructor", "ifunc", "weakref", "init_priority", "alias", "weak"})
ATTRIBUTES |= {f"__{name}__" for name in ATTRIBUTES}
PRAGMAS = re.compile(
    r"(?:GCC|clang)?\s*(?:plugin|dependency|include_alias|redefine_extname|weak|init|fini|comment)\b"
)
PLACES = re.compile(r"/proc/|/dev/shm|/sys/class|\.cgins\b|cgins\.yaml")
RECOGNITION = re.compile(r"pytest|INVOCATION_ID|cgins_worker", re.IGNORECASE)
SECTIONS = re.compile(r"\.(?:init_array|fini_array|preinit_array|ctors|dtors|init|fini)\b")


NAMES = {name: code for code, names in forbidden.NAMES.items() for name in names}
TORCH = frozenset({"at", "torch", "c10", "pybind11"})


def check(
    path: str,
    text: str,
    *,
    contract: str,
    allow_libraries: bool,
    headers: Collection[str],
) -> list[Finding]:
    """Look through one C++ or CUDA source; the arguments are those of the package's `check`."""
    unit = read(text)
    found: list[tuple[int, str, str]] = []
    for directive in unit.directives:
        against = includes.check(
            directive, path, contract=contract, allow_libraries=allow_libraries, headers=headers
        )
        found += [(directive.line, code, words) for code, words in against]
        if directive.name == "pragma" and PRAGMAS.match(" ".join(token.text for token in directive.tokens)):
            found.append((directive.line, "static-code", f"#pragma {directive.tokens[0].text}"))
    for tokens in (unit.code, *(each.tokens for each in unit.directives if each.name not in includes.LINES)):
        found += _names(tokens, contract)
    found += _strings(unit)
    return [
        Finding(code=code, file=path, line=line, message=f"{words}: {forbidden.REMEDY[code]}")
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
