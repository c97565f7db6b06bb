"""Answers in JSON: whole files, search/replace edits, edits by line numbers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.answers import own_files
from pytest_cgins.regenerate.answers.edits import Edit, LineEdit

MAXIMUM_DEPTH = 12
ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/", "'": "'", "\n": "",
}  # fmt: skip
SPACE = re.compile(r"(?:\s|//[^\n]*)*")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
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
            return self._items("]", lambda: self.value(depth + 1, in_list=True))
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
        return _once(self._items("}", lambda: self._pair(depth)))

    def _pair(self, depth: int) -> tuple[str, Any]:
        if not self.text.startswith('"', self.place):
            raise self.error("a key in quotes is missing")
        key = self._string(END_OF_KEY)
        self.skip()
        if not self._take(":"):
            raise self.error("a colon is missing")
        return key, self.value(depth + 1)

    def _items(self, end: str, read_item: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        self.place += 1
        while True:
            self.skip()
            if self._take(end):
                return items
            items.append(read_item())
            self.skip()
            if not self._take(",") and not self.text.startswith(end, self.place):
                raise self.error(f"a comma or {end} is missing")

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


PATH_KEYS = ("path", "file", "filename", "file_path", "filepath", "name")
TEXT_KEYS = ("content", "contents", "text", "code", "source", "new_content")
SEARCH_KEYS = ("search", "old", "old_str", "old_string", "old_text", "find", "original")
REPLACE_KEYS = ("replace", "new", "new_str", "new_string", "new_text", "replacement", "updated")
START_KEYS = ("start_line", "start", "line_start", "first_line", "line")
END_KEYS = ("end_line", "end", "line_end", "last_line")
TOP_KEYS = frozenset({"files", "edits", "changes", *PATH_KEYS, *TEXT_KEYS, *SEARCH_KEYS})
BARE = re.compile(r"[{\[]\s*(?:\{\s*)?\"(?:[\w-]{1,40}|[\w./\\-]{1,200})\"\s*:")
LINE_START = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
MAXIMUM_STARTS = 4
"""Places in prose at which JSON may begin that are tried."""
SHAPE = '{"files": {"PATH": "TEXT"}} or {"edits": [{"path": "PATH", "search": "OLD", "replace": "NEW"}]}'


@dataclass(slots=True)
class JsonAnswer:
    """What a JSON answer says."""

    files: list[tuple[str, str]] = field(default_factory=list)
    """Path and whole text, in order."""
    edits: list[Edit] = field(default_factory=list)
    """Search/replace, in order."""
    line_edits: list[LineEdit] = field(default_factory=list)
    """By line numbers."""
    left_out: list[str] = field(default_factory=list)
    """Names of tests and benchmarks that it gives besides."""


def is_json(text: str, *, is_called_so: bool) -> bool:
    """Whether a text is an answer in JSON, rather than some JSON that it shows."""
    start = text.strip()
    if not start.startswith(("{", "[")):
        return False
    return BARE.match(start) is not None and _mentions_answer(start) if not is_called_so else True


def bare(text: str) -> tuple[int, int] | None:
    """Where an answer in JSON stands in prose without a fence."""
    end = max(text.rfind("}"), text.rfind("]")) + 1
    starts = (place.end() for place in LINE_START.finditer(text) if BARE.match(text, place.end()))
    for start in itertools.islice(starts, MAXIMUM_STARTS):
        # The outermost first: files of a list begin lines of their own.
        if _is_answer(text[start:end]):
            return start, end
    found = re.search(
        r"^[ \t]*(?=[{\[]\s*(?:\{\s*)?\"(?:files|edits|changes|path|file|filename)\"\s*:)", text, re.MULTILINE
    )
    if found is None and BARE.match(text.strip()):
        found = re.match(r"\s*", text)
    if found is None:
        return None
    return (found.end(), end) if end > found.end() + 1 else (found.end(), len(text))


def _is_answer(text: str) -> bool:
    """Whether a text is JSON that says something of files."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return False
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and bool(set(first) & TOP_KEYS)


def read(text: str, own: Sequence[str], *, is_certain: bool) -> JsonAnswer | None:
    """What a JSON text says.

    Args:
        text: the JSON.
        own: the kernel's own sources.
        is_certain: whether it is the answer; else a text that is something else is None.

    Raises:
        AnswerError: `broken-json`, `two-versions`, or it touches another file.
    """
    try:
        value = loads(text.strip())
    except (ValueError, RecursionError) as error:
        if "twice" in str(error):
            raise AnswerError(
                f"the JSON of the answer is ambiguous: {error}",
                code="two-versions",
                remedy="give each file once",
            ) from None
        if not is_certain and not _mentions_answer(text):
            return None
        raise AnswerError(
            f"the answer's JSON cannot be read: {error}",
            code="broken-json",
            remedy='escape quotes and backslashes in texts (\\", \\\\), or answer with fenced blocks instead',
        ) from None
    said = JsonAnswer()
    is_read = _read_value(value, own, said)
    if is_read and (said.files or said.edits or said.line_edits):
        return said
    if not is_certain:
        return None
    raise AnswerError("the answer's JSON has no files and no edits", code="no-code", remedy=f"write {SHAPE}")


def _mentions_answer(text: str) -> bool:
    return re.search(r"\"(?:files|edits|changes|path|content|code|search|start_line)\"\s*:", text) is not None


def _read_value(value: Any, own: Sequence[str], said: JsonAnswer) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, dict) and _read_item(item, own, said) for item in value)
    if not isinstance(value, dict):
        return False
    if not set(value) & TOP_KEYS:
        paths = {key: text for key, text in value.items() if own_files.is_path(str(key))}
        return bool(paths) and _read_files(paths, own, said)
    done = False
    if "files" in value:
        done = _read_files(value["files"], own, said)
    for key in ("edits", "changes"):
        if isinstance(value.get(key), list):
            done = _read_value(value[key], own, said) or done
    return done or _read_item(value, own, said)


def _read_files(value: Any, own: Sequence[str], said: JsonAnswer) -> bool:
    if isinstance(value, list):
        return _read_value(value, own, said)
    if not isinstance(value, dict):
        return False
    for path, held in value.items():
        text = _text(held) if not isinstance(held, dict) else _text(_first(held, TEXT_KEYS))
        if text is None:
            return False
        if own_files.is_companion(str(path), own):
            said.left_out.append(str(path))
        else:
            said.files.append((own_files.resolve(str(path), own), text))
    return True


def _read_item(item: Mapping[str, Any], own: Sequence[str], said: JsonAnswer) -> bool:
    if isinstance(item.get("edits"), list) and _first(item, PATH_KEYS) is not None:
        inner = [
            {"path": _first(item, PATH_KEYS), **each} for each in item["edits"] if isinstance(each, dict)
        ]
        return _read_value(inner, own, said)
    search = _text(_first(item, SEARCH_KEYS))
    replace = _text(_first(item, REPLACE_KEYS))
    text = _text(_first(item, TEXT_KEYS))
    start, end = _number(_first(item, START_KEYS)), _number(_first(item, END_KEYS))
    new = text if text is not None else replace
    if new is None:
        return False
    named = _first(item, PATH_KEYS)
    if search is None and start is None and isinstance(named, str) and own_files.is_companion(named, own):
        said.left_out.append(named)
        return True
    path = _path(item, own)
    if search is not None and replace is not None:
        said.edits.append(Edit(path=path, search=search, replace=replace))
    elif start is not None:
        last = start if end is None else end
        said.line_edits.append(LineEdit(path=path, first_line=start, last_line=last, text=new))
    elif text is not None:
        said.files.append((path, text))
    else:
        return False
    return True


def _path(item: Mapping[str, Any], own: Sequence[str]) -> str:
    named = _first(item, PATH_KEYS)
    if isinstance(named, str):
        return own_files.resolve(named, own)
    if len(own) == 1:
        return own[0]
    raise AnswerError(
        "an item of the answer's JSON does not say which file it is of",
        code="which-file",
        remedy=f"write {SHAPE}",
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(item: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((item[key] for key in keys if key in item), None)


def _text(value: Any) -> str | None:
    """A text, or one given as a list of its lines; without a fence around all of it."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(line.removesuffix("\n") for line in value)
    if not isinstance(value, str):
        return None
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    fenced = re.fullmatch(r"\s*(```|~~~)[^\n]*\n(.*?)\n?\1\s*", text, re.DOTALL)
    return fenced[2] if fenced else text
