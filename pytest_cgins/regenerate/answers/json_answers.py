"""Answers in JSON: whole files, search/replace edits, edits by line numbers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.answers import own_files
from pytest_cgins.regenerate.answers.edits import Edit, LineEdit

SPACE = r"(?:\s|//[^\n]*)*"
PIECE = re.compile(
    rf'"""(?P<triple>.*?)"""|(?P<quote>")|(?P<dropped>//[^\n]*|,(?={SPACE}[}}\]]))|(?P<word>True|False|None)|.',
    re.DOTALL,
)
WORDS = {"True": "true", "False": "false", "None": "null"}
ESCAPE = re.compile(r"""\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]|\\.?|\"""", re.DOTALL)
ENDS = {
    "{": re.compile(r"\"\s*:"),
    ":": re.compile(r"\"\s*(?:,\s*\"[^\"\n\\]{1,300}\"\s*:|,?\s*\}\s*(?:,?\s*[\]}]|,\s*[{\"]|\Z))"),
    "[": re.compile(r"\"\s*(?:,\s*\"|,?\s*\]\s*(?:,\s*\"[^\"\n\\]{1,300}\"\s*:|\s*[\]}]|\Z))"),
}
"""What a quote that ends a text has behind it: a key, a value, an item of a list."""


class AmbiguousError(ValueError):
    """An object names a key twice, with different values."""


def loads(text: str) -> Any:
    """What a text says: strictly if it can be, else kindly.

    Raises:
        AmbiguousError: an object names a key twice.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return json.loads(text, strict=False, object_pairs_hook=_once)
    except AmbiguousError:
        raise
    except ValueError:
        return json.loads(_mended(text), strict=False, object_pairs_hook=_once)


def _mended(text: str) -> str:
    """JSON as models write it by hand, with the escapes that its texts lack; without comments and commas at an end."""
    parts: list[str] = []
    nested, before, place = [""], "", 0
    while found := PIECE.match(text, place):
        part, place = found[0], found.end()
        if found["triple"] is not None:
            part = json.dumps(found["triple"])
        elif found["quote"]:
            ends = ENDS[":" if before == ":" else nested[-1] or "["]
            quotes = (one for one in ESCAPE.finditer(text, place) if one[0] == '"')
            end = next((one.start() for one in quotes if ends.match(text, one.start())), None)
            if end is None:
                raise ValueError("a text in quotes is not closed")
            part, place = f'"{ESCAPE.sub(_escaped, text[place:end])}"', end + 1
        elif found["dropped"]:
            continue
        elif part in "[{":
            nested.append(part)
        elif part in "]}" and len(nested) > 1:
            nested.pop()
        before = before if part.isspace() else part
        parts.append(WORDS.get(part, part))
    return "".join(parts)


def _escaped(found: re.Match[str]) -> str:
    """An escape of JSON as it is, and what is none as the characters that it shows."""
    if len(found[0]) == 6 or re.fullmatch(r'\\["\\/bfnrt]', found[0]):
        return found[0]
    return {'"': '\\"', "\\'": "'", "\\\n": ""}.get(found[0], f"\\{found[0]}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise AmbiguousError(f'"{key[:80]}" is given twice')
        found[key] = value
    return found


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
    except AmbiguousError as error:
        raise AnswerError(
            f"the JSON of the answer is ambiguous: {error}", code="two-versions", remedy="give each file once"
        ) from None
    except (ValueError, RecursionError) as error:
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
