r"""C++ and CUDA text as tokens: what a compiler sees once comments are gone and lines are joined.

Lines that end in a backslash are joined first, as the language has it, so that `fop\` and `en` on two lines are one
name; raw strings are read from the text as it was. Macros are not expanded: their bodies are tokens like others.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

Kind = Literal["name", "number", "text", "character", "mark"]

SPLICE = re.compile(r"\\[ \t]*\n")
TOKEN = re.compile(
    r"""(?P<newline>\n)
      | (?P<skipped>[^\S\n]+ | //[^\n]* | /\*(?:.*?\*/|.*))
      | (?:u8|[uUL])?R"(?P<raw>[^()\\\s]{0,16})\(
      | (?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"?)
      | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'?)
      | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
      | (?P<name>[^\W\d][\w$]*|\$[\w$]*)
      | (?P<mark><<<|>>>|->|::|\#\#|%:%:|%:|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of code."""

    kind: Kind
    """What it is."""
    text: str
    """As it stands; of a string, what is in the quotes."""
    line: int
    """1-based, in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """A preprocessor line."""

    name: str
    """`include`, `define`, …"""
    tokens: tuple[Token, ...]
    """What follows the name."""
    rest: str
    """The same as text, without comments."""
    line: int
    """1-based, where it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A source, read."""

    code: tuple[Token, ...]
    """All but directives, in order."""
    directives: tuple[Directive, ...]
    """In order."""

    def strings(self) -> list[Token]:
        """String literals, those side by side joined, as a compiler does."""
        found = []
        for tokens in (self.code, *(directive.tokens for directive in self.directives)):
            for is_text, group in groupby(tokens, lambda token: token.kind == "text"):
                parts = list(group)
                if is_text:
                    found.append(Token("text", "".join(part.text for part in parts), parts[0].line))
        return found


def read(text: str) -> Unit:
    """The tokens of a C++ or CUDA source; any text has some."""
    return _Reader(text.replace("\r\n", "\n").replace("\r", "\n")).run()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._cuts: list[int] = []
        """Places in the joined text at which a line end was taken out."""
        self._lost: list[int] = [0]
        """How many characters were taken out up to each."""
        parts, at, length = [], 0, 0
        for found in SPLICE.finditer(text):
            parts.append(text[at : found.start()])
            length += found.start() - at
            at = found.end()
            self._cuts.append(length)
            self._lost.append(at - length)
        self._joined = "".join([*parts, text[at:]])
        self._code: list[Token] = []
        self._directives: list[Directive] = []
        self._open: list[Token] | None = None
        self._is_fresh = True
        """Whether nothing but space has come since the line began."""

    def run(self) -> Unit:
        place = 0
        while place < len(self._joined):
            found = TOKEN.match(self._joined, place)
            if found is None:
                break
            kind = found.lastgroup or ""
            place = self._raw(found) if kind == "raw" else found.end()
            if kind == "newline":
                self._end_line()
            elif kind not in ("skipped", "raw"):
                self._add(kind, found)
        self._end_line()
        return Unit(code=tuple(self._code), directives=tuple(self._directives))

    def _add(self, kind: str, found: re.Match[str]) -> None:
        text, line = found[0], self._line(found.start())
        if self._is_fresh and text in ("#", "%:") and self._open is None:
            self._open = [Token("mark", "#", line)]
            return
        self._is_fresh = False
        if kind in ("text", "character"):
            quote = '"' if kind == "text" else "'"
            text = text[text.index(quote) + 1 :].removesuffix(quote)
        target = self._code if self._open is None else self._open
        target.append(Token(kind, text, line))  # type: ignore[arg-type]

    def _raw(self, found: re.Match[str]) -> int:
        """Take a raw string from the text as it was; the place behind it in the joined text."""
        begin = self._origin(found.end())
        end = self._text.find(f'){found["raw"]}"', begin)
        content = self._text[begin : end if end >= 0 else len(self._text)]
        self._is_fresh = False
        target = self._code if self._open is None else self._open
        target.append(Token("text", content, self._line(found.start())))
        behind = len(self._text) if end < 0 else end + len(found["raw"]) + 2
        return self._joined_place(behind)

    def _end_line(self) -> None:
        if self._open is not None:
            hash_, *tokens = self._open
            name = tokens[0].text if tokens and tokens[0].kind == "name" else ""
            rest = tuple(tokens[1:] if name else tokens)
            self._directives.append(Directive(name=name, tokens=rest, rest=_spelled(rest), line=hash_.line))
            self._open = None
        self._is_fresh = True

    def _origin(self, place: int) -> int:
        return place + self._lost[bisect_right(self._cuts, place)]

    def _joined_place(self, origin: int) -> int:
        low, high = 0, len(self._joined)
        while low < high:
            middle = (low + high) // 2
            if self._origin(middle) < origin:
                low = middle + 1
            else:
                high = middle
        return low

    def _line(self, place: int) -> int:
        return bisect_right(self._ends, self._origin(place) - 1) + 1 if place else 1


def _spelled(tokens: tuple[Token, ...]) -> str:
    return "".join(f'"{token.text}"' if token.kind == "text" else token.text for token in tokens)
