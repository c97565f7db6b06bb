"""Which function of a torch extension an entry means: by the name that is exported, or by the C++ function's own.

An extension may have a module of its own (`PYBIND11_MODULE`), operators (`TORCH_LIBRARY`), or neither: then the tool
binds the function. The text of the sources tells which, and which names stand in one call of `def` or `impl`. What
macros make of a source only its library tells: see `extension_function`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_cgins.building.contracts.cxx import code_of, without_comments
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.text import nearest

_BINDING = re.compile(
    r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY\w*)\s*\([^)]*\)\s*(?=\{)|\.\s*(?:def\w*|impl)\s*(?=\()"
)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_REGISTRATION = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT|_EXPAND)?\s*\(\s*(\w+)\s*,")
_CLOSING = {"(": ")", "{": "}"}
_REACH = 20_000
"""Characters that a call of `def`, with the body of a lambda, may have before a name in it."""


@dataclass(frozen=True, slots=True)
class Exports:
    """The sources of an extension and the headers of theirs, read for what they export."""

    file: str
    """The first source, for messages."""
    text: str
    """All of them, without comments."""
    code: str
    """The same, without strings."""

    @classmethod
    def of(cls, file: str, texts: Sequence[str]) -> Exports:
        """Read texts of sources and headers."""
        return cls(file, *("\n".join(map(bare, texts)) for bare in (without_comments, code_of)))

    @property
    def has_module(self) -> bool:
        """Whether the sources bind a Python module themselves."""
        return re.search(r"\bPYBIND11_MODULE\b", self.code) is not None

    @property
    def namespaces(self) -> frozenset[str]:
        """Namespaces of operators that the sources define; a macro for one is looked up."""
        found = set()
        for name in _REGISTRATION.findall(self.code):
            value = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+(\w+)[ \t]*$", self.code, re.MULTILINE)
            found.add(value[1] if value else name)
        return frozenset(found)

    def is_function(self, name: str) -> bool:
        """Whether a C++ function has this name, or something is called by it."""
        return re.search(rf"\b{re.escape(name)}\s*\(", self.code) is not None

    def wants_binding(self, entry: str) -> bool:
        """Whether the entry is a C++ function that the sources bind to no module of their own."""
        if "::" in entry or "." in entry or not self.is_function(entry):
            return False
        return not (self.has_module and any(re.search(rf"\b{entry}\b", part) for part in self._bindings()))

    def names_of(self, function: str) -> list[str]:
        """Names that stand in one call with a C++ function, as `forward` does in `m.def("forward", &softmax)`."""
        found: list[str] = []
        for place in re.finditer(rf"\b{re.escape(function)}\b", self.text):
            call = self._call_around(place.start())
            found += re.findall(r"[A-Za-z_]\w*", call)
        return list(dict.fromkeys(found))

    def require(self, entry: str) -> None:
        """Refuse an entry that the sources cannot mean.

        Raises:
            SourceError: with the nearest name.
        """
        namespace, colons, _ = entry.partition("::")
        last = re.split(r"::|\.", entry)[-1]
        exporting = self.has_module or bool(self.namespaces)
        if colons and namespace not in self.namespaces and not (self.has_module and self._mentions(last)):
            raise SourceError(
                f'{self.file}: no TORCH_LIBRARY registers "{namespace}"',
                remedy=f"write TORCH_LIBRARY({namespace}, m) {{ … }}, or let entry name a function on torch::Tensor",
            )
        pastes = any("#" in define.partition("define")[2] for define in _DEFINE.findall(self.code))
        if (
            (colons and namespace in self.namespaces)
            or self.is_function(last)
            or (exporting and (self._mentions(last) or pastes))
        ):
            return
        functions = set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", self.code))
        exported = set(re.findall(r'"([A-Za-z_]\w*)', self.text)) if exporting else set()
        raise SourceError(
            f'{self.file}: no function "{entry}"',
            remedy=nearest(last, functions | exported)
            or "entry names the function that takes and returns torch::Tensor",
        )

    def _mentions(self, name: str) -> bool:
        return re.search(rf"\b{re.escape(name)}\b", self.text) is not None

    def _bindings(self) -> Iterator[str]:
        """Bodies of modules and registrations, calls of `def`, and macros, which may be either."""
        yield from _DEFINE.findall(self.text)
        for found in _BINDING.finditer(self.text):
            yield self.text[found.end() : self._end(found.end())]

    def _call_around(self, place: int) -> str:
        """The parenthesized text around a place whose first argument is a name or a string; "" if there is none."""
        depth = 0
        for start in range(place - 1, max(-1, place - _REACH), -1):
            character = self.code[start]
            if character in ")}":
                depth += 1
            elif character in "({" and depth:
                depth -= 1
            elif character == "(" and re.match(
                r'\(\s*(?:"|[A-Za-z_]\w*\s*,)', self.text[start : start + 200]
            ):
                return self.text[start : self._end(start)]
        return ""

    def _end(self, start: int) -> int:
        """Behind the bracket that closes the one at a place."""
        opening, depth = self.code[start], 0
        for end in range(start, len(self.code)):
            depth += (self.code[end] == opening) - (self.code[end] == _CLOSING[opening])
            if not depth:
                return end + 1
        return len(self.code)
