r"""C++ and CUDA text as tokens: what a compiler sees once comments are gone and lines are joined.

Lines that end in a backslash are joined first, as the language has it, so that `fop\` and `en` on two lines are one
name; raw strings are read from the text as it was. Macros are not expanded: their bodies are tokens like others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

Kind = Literal["name", "number", "text", "character", "mark"]

SPLICE = re.compile(r"\\[ \t]*\n")
TOKEN = re.compile(
    r"""(?P<newline>\n)
      | (?P<skipped>[^\S\n]+ | //(?:\\[ \t]*\n|[^\n])* | /\*.*?(?:\*/|\Z))
      | (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\((?P<raw>.*?)(?:\)(?P=delimiter)"|\Z)
      | (?P<text>(?:u8|[uUL])?"(?:\\[ \t]*\n|\\.|[^"\\\n])*"?)
      | (?P<character>(?:u8|[uUL])?'(?:\\[ \t]*\n|\\.|[^'\\\n])*'?)
      | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
      | (?P<name>[^\W\d][\w$]*|\$[\w$]*)
      | (?P<splice>\\[ \t]*\n)
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
    code: list[Token] = []
    directives: list[Directive] = []
    line, tokens = 1, list[Token]()
    # None ends the last line, whatever is left open in it.
    for found in (*TOKEN.finditer(_joined(text.replace("\r\n", "\n").replace("\r", "\n"))), None):
        if found is None or found.lastgroup == "newline":
            if tokens and tokens[0].kind == "mark" and tokens[0].text in ("#", "%:"):
                directives.append(_directive(*tokens))
            else:
                code += tokens
            tokens = []
        elif found.lastgroup not in ("skipped", "splice"):
            tokens.append(_token(found, line))
        line += found[0].count("\n") if found is not None else 0
    return Unit(code=tuple(code), directives=tuple(directives))


def _joined(text: str) -> str:
    """Without the line ends that a backslash takes away, those in raw strings apart.

    The next line end makes up for them, so that lines keep their numbers.
    """
    parts, missing = [], 0
    for found in TOKEN.finditer(text):
        part = found[0]
        if found.lastgroup == "newline":
            part, missing = "\n" * (1 + missing), 0
        elif found.lastgroup != "raw":
            part, count = SPLICE.subn("", part)
            missing += count
        parts.append(part)
    return "".join(parts)


def _token(found: re.Match[str], line: int) -> Token:
    kind, text = found.lastgroup, found[0]
    if kind == "raw":
        kind, text = "text", found["raw"]
    elif kind in ("text", "character"):
        quote = '"' if kind == "text" else "'"
        text = text[text.index(quote) + 1 :].removesuffix(quote)
    return Token(kind, text, line)  # type: ignore[arg-type]


def _directive(mark: Token, *tokens: Token) -> Directive:
    name = tokens[0].text if tokens and tokens[0].kind == "name" else ""
    rest = tokens[1:] if name else tokens
    text = "".join(f'"{token.text}"' if token.kind == "text" else token.text for token in rest)
    return Directive(name=name, tokens=rest, rest=text, line=mark.line)
