"""JSON as models write it: trailing commas, raw line breaks in strings, quotes inside strings that are not escaped.

Libraries that repair JSON guess for any text, and cut a source short at the first quote that they take for its end.
This reader takes a quote for the end only where what follows goes on as JSON does, and refuses the rest.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAXIMUM_DEPTH = 12
ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    '"': '"',
    "\\": "\\",
    "/": "/",
    "'": "'",
    "\n": "",
}
SPACE = re.compile(r"(?:\s|//[^\n]*)*")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}
END_OF_KEY = re.compile(r"\"\s*:")
AFTER_VALUE = re.compile(r"\"\s*(?:,\s*\"[^\"\n\\]{1,300}\"\s*:|,?\s*\}\s*(?:,?\s*[\]}]|,\s*[{\"]|\Z))")
AFTER_ITEM = re.compile(r"\"\s*(?:,\s*\"|,?\s*\]\s*(?:,\s*\"[^\"\n\\]{1,300}\"\s*:|\s*[\]}]|\Z))")


class LooseJsonError(ValueError):
    """A text is not JSON, even read kindly; its message says where."""


def loads(text: str) -> Any:
    """What a text says: strictly if it can be, else kindly.

    Raises:
        LooseJsonError: it is not JSON, or an object names a key twice.
    """
    try:
        return json.loads(text, strict=False, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, LooseJsonError):
            raise
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip()
    if reader.place < len(text):
        raise reader.error("more follows behind the end")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise LooseJsonError(f'"{key[:80]}" is given twice')
        found[key] = value
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def error(self, what: str) -> LooseJsonError:
        line = self.text.count("\n", 0, self.place) + 1
        return LooseJsonError(f"line {line}: {what}")

    def skip(self) -> None:
        found = SPACE.match(self.text, self.place)
        self.place = found.end() if found else self.place

    def value(self, depth: int, *, in_list: bool = False) -> Any:
        self.skip()
        if depth > MAXIMUM_DEPTH:
            raise self.error("nested too deeply")
        rest = self.text[self.place : self.place + 5]
        if rest.startswith("{"):
            return self._object(depth)
        if rest.startswith("["):
            return self._list(depth)
        if rest.startswith('"""'):
            return self._triple()
        if rest.startswith('"'):
            return self._string(AFTER_ITEM if in_list else AFTER_VALUE)
        number = NUMBER.match(self.text, self.place)
        if number:
            self.place = number.end()
            return float(number[0]) if re.search(r"[.eE]", number[0]) else int(number[0])
        for word, value in WORDS.items():
            if self.text.startswith(word, self.place):
                self.place += len(word)
                return value
        raise self.error("a value is missing")

    def _object(self, depth: int) -> dict[str, Any]:
        pairs: list[tuple[str, Any]] = []
        self.place += 1
        while True:
            self.skip()
            if self._take("}"):
                return _once(pairs)
            if not self.text.startswith('"', self.place):
                raise self.error("a key in quotes is missing")
            key = self._string(END_OF_KEY)
            self.skip()
            if not self._take(":"):
                raise self.error("a colon is missing")
            pairs.append((key, self.value(depth + 1)))
            self.skip()
            if not self._take(",") and not self.text.startswith("}", self.place):
                raise self.error("a comma or } is missing")

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.place += 1
        while True:
            self.skip()
            if self._take("]"):
                return items
            items.append(self.value(depth + 1, in_list=True))
            self.skip()
            if not self._take(",") and not self.text.startswith("]", self.place):
                raise self.error("a comma or ] is missing")

    def _take(self, character: str) -> bool:
        if self.text.startswith(character, self.place):
            self.place += 1
            return True
        return False

    def _triple(self) -> str:
        end = self.text.find('"""', self.place + 3)
        if end < 0:
            raise self.error("a text is not closed")
        found = self.text[self.place + 3 : end]
        self.place = end + 3
        return found

    def _string(self, end: re.Pattern[str]) -> str:
        begin, parts = self.place, []
        place = begin + 1
        special = re.compile(r'[\\"]')
        while True:
            found = special.search(self.text, place)
            if found is None:
                raise self.error("a text in quotes is not closed")
            parts.append(self.text[place : found.start()])
            place = found.start()
            if found[0] == "\\":
                text, place = self._escape(place)
                parts.append(text)
            elif end.match(self.text, place):
                self.place = place + 1
                return "".join(parts)
            else:
                parts.append('"')
                place += 1

    def _escape(self, place: int) -> tuple[str, int]:
        mark = self.text[place + 1 : place + 2]
        if mark == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", self.text[place + 2 : place + 6]):
            return chr(int(self.text[place + 2 : place + 6], 16)), place + 6
        if mark in ESCAPES:
            return ESCAPES[mark], place + 2
        return "\\" + mark, place + 1 + len(mark)
