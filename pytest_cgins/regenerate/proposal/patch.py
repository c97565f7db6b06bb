"""The patch of a proposal: made from both texts, and taken back from the new one.

It is git's format, in bytes: lines end in a newline and nothing else, so that a carriage return is part of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import diff_bytes, unified_diff
from itertools import islice, takewhile

from pytest_cgins.core.errors import ProposalError

CONTEXT = 3
MOST_COMPARED_LINES = 3000
"""In longer files all between the first and the last line that differ is replaced: to compare them could take minutes."""
NO_NEWLINE = b"\\ No newline at end of file"

_HUNK = re.compile(rb"@@ -(\d{1,7})(?:,(\d{1,7}))? \+(\d{1,7})(?:,(\d{1,7}))? @@")
_REMEDY = "the patch is not the one that was written with these files: make the proposal again"


def make(base: Mapping[str, bytes], new: Mapping[str, bytes]) -> bytes:
    """The patch that `git apply` takes.

    Args:
        base: old contents by path; a path that is not in it is a new file.
        new: new contents by path; each differs from the old one, and none is empty.
    """
    out: list[bytes] = []
    for path in sorted(new):
        out += [line + b"\n" for line in _header(path, created=path not in base)]
        for line in _hunks(lines(base.get(path, b"")), lines(new[path])):
            out.append(line if line.endswith(b"\n") else b"%b\n%b\n" % (line, NO_NEWLINE))
    return b"".join(out)


def invert(patch: bytes, new: Mapping[str, bytes], created: frozenset[str]) -> dict[str, bytes]:
    """The old contents, if the patch leads from them to the new ones and says nothing else.

    Args:
        patch: not trusted.
        new: contents after the patch, by path.
        created: those of the paths that are new files.

    Returns:
        Old contents by path, of all that are not new.

    Raises:
        ProposalError: the patch changes other files, or changes these otherwise; the message has its line.
    """
    reader = _Reader(patch)
    base = {}
    for path in sorted(new):
        for wanted in _header(path, created=path in created):
            reader.require(wanted)
        old = _old_lines(reader, lines(new[path]))
        text = b"".join(old)
        if lines(text) != old or text == new[path]:
            reader.fail(f"does not say how {path} was changed")
        if path in created:
            if text:
                reader.fail(f"takes lines from {path}, which is a new file")
        else:
            base[path] = text
    if not reader.ended:
        reader.fail("has more than the files of the proposal")
    return base


def lines(text: bytes) -> list[bytes]:
    """Lines with their newlines; the last may have none."""
    parts = text.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


# ---- writing


def _header(path: str, *, created: bool) -> list[bytes]:
    name = path.encode("ascii")
    # So git parts a name with blanks from what other tools write behind it.
    end = b"\t" if b" " in name else b""
    head = [b"diff --git a/%b b/%b" % (name, name)]
    head += [b"new file mode 100644", b"--- /dev/null"] if created else [b"--- a/%b%b" % (name, end)]
    return [*head, b"+++ b/%b%b" % (name, end)]


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    """Stretches that differ, with their context, each line with its mark."""
    if max(len(old), len(new)) <= MOST_COMPARED_LINES:
        yield from islice(diff_bytes(unified_diff, old, new, n=CONTEXT), 2, None)
        return
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    start, more = max(0, head - CONTEXT), min(tail, CONTEXT)
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    counts = [len(one) + head - start + more for one in (gone, come)]
    # An empty range is told by the line before it.
    ranges = (start + bool(counts[0]), counts[0], start + bool(counts[1]), counts[1])
    yield b"@@ -%d,%d +%d,%d @@\n" % ranges
    yield from (b" " + line for line in old[start:head])
    yield from (b"-" + line for line in gone)
    yield from (b"+" + line for line in come)
    yield from (b" " + line for line in old[len(old) - tail :][:more])


def _shared(old: list[bytes], new: list[bytes]) -> int:
    """How many lines both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


# ---- reading


class _Reader:
    """Lines of a patch, one after the other."""

    def __init__(self, patch: bytes) -> None:
        self._lines = patch.split(b"\n")
        self._at = 0
        if self._lines.pop() != b"":
            self.fail("does not end in a newline")

    @property
    def ended(self) -> bool:
        return self._at >= len(self._lines)

    def peek(self) -> bytes:
        return b"" if self.ended else self._lines[self._at]

    def take(self) -> bytes:
        if self.ended:
            self.fail("ends too early")
        self._at += 1
        return self._lines[self._at - 1]

    def require(self, wanted: bytes) -> None:
        if self.ended or self.peek() != wanted:
            self.fail(f"has no line {wanted.decode('ascii')!r} here")
        self._at += 1

    def fail(self, what: str) -> None:
        raise ProposalError(f"patch.diff:{self._at + 1}: {what}", remedy=_REMEDY)


def _old_lines(reader: _Reader, new: list[bytes]) -> list[bytes]:
    """Lines of the old file, from all of its hunks and from what they leave as it is."""
    old: list[bytes] = []
    at = 0
    while match := _HUNK.fullmatch(reader.peek()):
        old_start, old_count, new_start, new_count = (
            1 if number is None else int(number) for number in match.groups()
        )
        begin = new_start - 1 if new_count else new_start
        if not at <= begin <= len(new):
            reader.fail("has a part that is not where it says")
        old += new[at:begin]
        at = begin
        if len(old) != (old_start - 1 if old_count else old_start):
            reader.fail("has a part that is not where it says")
        reader.take()
        at = _take_hunk(reader, old, new, at, (old_count, new_count))
    return old + new[at:]


def _take_hunk(reader: _Reader, old: list[bytes], new: list[bytes], at: int, counts: tuple[int, int]) -> int:
    """Add a part's lines to the old ones; gives back where in the new ones it ends."""
    old_left, new_left = counts
    while old_left or new_left:
        line = reader.take()
        mark, text = line[:1], line[1:] + b"\n"
        if reader.peek() == NO_NEWLINE:
            reader.take()
            text = line[1:]
        if mark not in (b" ", b"-", b"+"):
            reader.fail("has a line that is neither context nor a change")
        if mark != b"+":
            old.append(text)
            old_left -= 1
        if mark != b"-":
            if at >= len(new) or new[at] != text:
                reader.fail("has other lines than the new file")
            at += 1
            new_left -= 1
        if old_left < 0 or new_left < 0:
            reader.fail("has a part that is longer than it says")
    return at
