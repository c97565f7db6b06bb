"""A model's answer, cut into prose, fenced blocks and search/replace blocks. Nothing here knows about kernels.

A fence is closed by a line of at least as many of its own characters, as CommonMark has it, with two allowances for
what models write: a fence with a language inside a fence opens a nested one, and a bare fence inside a comment of the
code belongs to the code.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

OPENING = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\n]*)$")
BARE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*$")
SEARCH = re.compile(r"^[ \t]*<{5,9}[ \t]*(?:SEARCH|ORIGINAL)\b[ \t]*:?[ \t]*(.*)$")
DIVIDER = re.compile(r"^[ \t]*={5,9}[ \t]*$")
REPLACE = re.compile(r"^[ \t]*>{5,9}[ \t]*(?:REPLACE|UPDATED)\b.*$")
THOUGHT = "think|thinking|thought|reasoning"
FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>")
NESTING = frozenset({"markdown", "md"})
"""Languages of blocks that are an answer themselves."""
QUOTED = re.compile(
    r"""//[^\n]*|\#[^\n]*|/\*.*?\*/|\"{3}.*?\"{3}|'{3}.*?'{3}|(?P<open>/\*|\"{3}|'{3}).*|"""
    r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
MAXIMUM_BARE = 200
"""Bare fences in an answer, up to which those in comments are told from those that close a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block."""

    info: str
    """What stands behind the opening fence."""
    text: str
    """What is in it."""
    above: tuple[str, ...]
    """Lines of prose between what came before and the fence."""
    is_closed: bool
    """Whether its closing fence is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReplace:
    """A block `<<<<<<< SEARCH` … `=======` … `>>>>>>> REPLACE`."""

    search: str
    """What is to be found."""
    replace: str
    """What comes in its place."""
    names: tuple[str, ...]
    """Lines that may name its file, the nearest first: beside the mark, above it, at the fence, above the fence."""
    is_closed: bool
    """Whether both other marks are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """An answer, cut up."""

    blocks: tuple[Block, ...]
    """Fenced blocks without search/replace blocks in them."""
    edits: tuple[SearchReplace, ...]
    """Search/replace blocks, inside fences or not."""
    prose: str
    """The rest."""


def normalise(text: str) -> str:
    """The text without byte-order marks, with plain line ends, and unescaped if it is HTML throughout."""
    return unescape(text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n"))


def unescape(text: str) -> str:
    """`&lt;` as `<` where a text has entities and neither a `<` nor a `>` of its own."""
    if "<" not in text and ">" not in text and re.search(r"&(?:lt|gt|amp|quot|#39);", text):
        return html.unescape(text)
    return text


def without_thought(text: str) -> tuple[str, bool]:
    """The answer proper, and whether it ends inside a thought.

    What stands before a `</think>` that nothing opened is thought: some servers eat the opening mark.
    """
    channels = list(FINAL_CHANNEL.finditer(text))
    if channels:
        text = text[channels[-1].end() :]
    kept: list[str] = []
    start, opened = 0, -1
    for tag in re.finditer(rf"<(/?)(?:{THOUGHT})>", text):
        if tag[1]:
            if opened < 0 and not kept and start == 0:
                start = tag.end()
            elif opened >= 0:
                kept.append(text[start:opened])
                start, opened = tag.end(), -1
        elif opened < 0 and not text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()].strip():
            opened = tag.start()
    if opened >= 0:
        return "".join([*kept, text[start:opened]]), True
    return "".join([*kept, text[start:]]), False


def cut(text: str) -> Pieces:
    """Cut an answer into its pieces.

    Fences are read with nested ones first. If that leaves one open, each fence is closed by the next bare one: an
    answer that forgot a closing fence is not swallowed by the block that lacks it.
    """
    lines = text.split("\n")
    nested = _Cutter(lines, nesting=True).run()
    if all(block.is_closed for block in nested.blocks):
        return _unfold(nested)
    flat = _Cutter(lines, nesting=False).run()
    return _unfold(flat)


def _unfold(pieces: Pieces) -> Pieces:
    """Blocks of Markdown with what is in them in their place."""
    blocks: list[Block] = []
    edits = list(pieces.edits)
    for block in pieces.blocks:
        if block.info.strip().lower() in NESTING and re.search(r"^(```|~~~)", block.text, re.MULTILINE):
            inner = _Cutter(block.text.split("\n"), nesting=True).run()
            blocks += inner.blocks
            edits += inner.edits
        else:
            blocks.append(block)
    return Pieces(blocks=tuple(blocks), edits=tuple(edits), prose=pieces.prose)


@dataclass(slots=True)
class _Open:
    """A fence that is being read."""

    indent: str
    mark: str
    info: str
    above: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    has_edits: bool = False


class _Cutter:
    """Goes through an answer once, line by line."""

    def __init__(self, lines: Sequence[str], *, nesting: bool) -> None:
        self._lines = lines
        self._nesting = nesting
        self._fence: _Open | None = None
        self._blocks: list[Block] = []
        self._edits: list[SearchReplace] = []
        self._prose: list[str] = []
        self._above: list[str] = []
        self._last_divider = max(
            (place for place, line in enumerate(lines) if DIVIDER.match(line)), default=-1
        )
        self._last_end = max((place for place, line in enumerate(lines) if REPLACE.match(line)), default=-1)
        self._bare = [place for place, line in enumerate(lines) if BARE.match(line)]

    def run(self) -> Pieces:
        index = 0
        while index < len(self._lines):
            line = self._lines[index]
            marked = SEARCH.match(line)
            # Else it is a line of prose or code; one that is cut off at the end begins a block.
            if marked and (index < self._last_divider or index > self._last_end):
                index = self._read_edit(index, marked[1])
                continue
            if self._fence is None:
                self._outside(line)
            else:
                self._inside(self._fence, line, index)
            index += 1
        if self._fence is not None:
            self._close(self._fence, is_closed=False)
        return Pieces(blocks=tuple(self._blocks), edits=tuple(self._edits), prose="\n".join(self._prose))

    def _outside(self, line: str) -> None:
        opening = OPENING.match(line)
        if opening and not ("`" in opening[2] and "`" in opening[3]):
            self._fence = _Open(
                indent=opening[1], mark=opening[2], info=opening[3].strip(), above=tuple(self._above)
            )
            self._above = []
        else:
            self._prose.append(line)
            self._above.append(line)

    def _inside(self, fence: _Open, line: str, index: int) -> None:
        found = OPENING.match(line)
        most = len(fence.indent.expandtabs(4)) + 3
        if found and found[2][0] == fence.mark[0] and len(found[1].expandtabs(4)) <= most:
            is_bare = not found[3].strip()
            if is_bare and len(found[2]) >= len(fence.mark):
                if fence.depth > 0:
                    fence.depth -= 1
                elif not self._is_in_comment(fence, index):
                    self._close(fence, is_closed=True)
                    return
            elif not is_bare and len(found[2]) == len(fence.mark) and "`" not in found[3]:
                if not self._nesting:
                    self._close(fence, is_closed=True)
                    self._outside(line)
                    return
                fence.depth += 1
        fence.lines.append(line)

    def _is_in_comment(self, fence: _Open, index: int) -> bool:
        """Whether a bare fence lies in a comment of the code, which is closed further below, before another fence."""
        if len(self._bare) > MAXIMUM_BARE or index == self._bare[-1]:
            return False
        marks = [found["open"] for found in QUOTED.finditer("\n".join(fence.lines)) if found["open"]]
        ends = ["*/" if mark == "/*" else mark for mark in marks]
        return bool(ends) and any(ends[0] in line for line in self._lines[index + 1 : self._bare[-1]])

    def _close(self, fence: _Open, *, is_closed: bool) -> None:
        self._fence = None
        self._above = []
        if fence.has_edits:
            if "".join(fence.lines).strip():
                self._prose += fence.lines
            return
        text = "\n".join(_dedented(fence.lines, fence.indent))
        self._blocks.append(Block(info=fence.info, text=text, above=fence.above, is_closed=is_closed))

    def _read_edit(self, index: int, beside: str) -> int:
        """Read the block that begins at a line; the line behind it."""
        fence = self._fence
        inside = [line for line in fence.lines if line.strip()] if fence else []
        above = [line for line in (fence.above if fence else self._above) if line.strip()]
        names = (beside, *reversed(inside[-1:]), fence.info if fence else "", *reversed(above[-1:]))
        parts: list[list[str]] = [[], []]
        part, is_closed, index = 0, False, index + 1
        while index < len(self._lines):
            line = self._lines[index]
            if SEARCH.match(line):
                break
            index += 1
            if part == 0 and DIVIDER.match(line):
                part = 1
            elif part == 1 and REPLACE.match(line):
                is_closed = True
                break
            else:
                parts[part].append(line)
        indent = fence.indent if fence else ""
        search, replace = ("\n".join(_dedented(lines, indent)) for lines in parts)
        self._edits.append(
            SearchReplace(
                search=search,
                replace=replace,
                names=tuple(name for name in names if name.strip()),
                is_closed=is_closed,
            )
        )
        if fence is not None:
            fence.has_edits = True
            fence.lines = []
        return index


def _dedented(lines: Sequence[str], indent: str) -> Sequence[str]:
    """Lines of a fence that is itself indented, as in a list."""
    if indent and all(line.startswith(indent) or not line.strip() for line in lines):
        return [line.removeprefix(indent) for line in lines]
    return lines


def languages(info: str) -> Iterator[str]:
    """The words of an info string that may be a language, in lower case."""
    for word in re.split(r"[\s,{}:]+", info.strip().lower()):
        if word and "=" not in word and "/" not in word:
            yield word.lstrip(".")
