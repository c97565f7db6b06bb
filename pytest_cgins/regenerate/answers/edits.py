"""Edits of a source: found by the text that they replace, by line numbers, or as unified diffs, and applied in order."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.answers import own_files
from pytest_cgins.regenerate.answers.fences import unescape

SHOWN_LINES = 12
MAXIMUM_PLACES = 64
COMPARED_LINES = 6000
"""Lines of a source that the nearest is looked for in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replacement of text in a file."""

    path: str
    """Which own source."""
    search: str
    """What is to be found; "" for a file that is still empty."""
    replace: str
    """What comes in its place."""
    near_line: int = 0
    """1-based line where a diff says that it is, which decides between equal places; 0 where nothing says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEdit:
    """One replacement of lines, numbered as in the file that the prompt showed."""

    path: str
    """Which own source."""
    first_line: int
    """1-based."""
    last_line: int
    """Inclusive; one less than the first to insert before it."""
    text: str
    """What comes in their place."""


def apply_edit(text: str, edit: Edit) -> str:
    """The text with one edit applied.

    The search text is looked for as whole lines, then as it stands, then without regard to white space at line ends,
    to blank lines around it, and to indentation that is off by the same amount throughout.

    Raises:
        AnswerError: `edit-not-found` or `edit-ambiguous`.
    """
    search, replace = edit.search, edit.replace
    if not search.strip("\n"):
        return _into_empty(text, edit)
    unescaped = unescape(search + "\0" + replace)
    if search not in text and unescaped != search + "\0" + replace:
        search, _, replace = unescaped.partition("\0")
    lines, wanted = text.split("\n"), search.strip("\n").split("\n")
    new = _trimmed_alike(search, replace)
    if places := _places(lines, wanted):
        place = _only(places, edit, lines, len(wanted))
        return "\n".join([*lines[:place], *new, *lines[place + len(wanted) :]])
    if text.count(search) == 1:
        return text.replace(search, replace)
    if text.count(search) > 1:
        starts = [text.count("\n", 0, found.start()) for found in re.finditer(re.escape(search), text)]
        _only(list(dict.fromkeys(starts)), edit, lines, len(wanted), is_part=True)
    return _apply_loosely(lines, wanted, new, edit)


def apply_line_edits(text: str, edits: Sequence[LineEdit]) -> str:
    """The text with edits by line numbers applied, all of which mean the lines of `text`.

    Raises:
        AnswerError: `edit-lines`: lines that are not there, or edits that overlap.
    """
    lines = text.split("\n")
    count = len(lines) - (1 if lines[-1] == "" else 0)
    ordered = sorted(edits, key=lambda edit: (edit.first_line, edit.last_line))
    for edit in ordered:
        if not (1 <= edit.first_line <= edit.last_line + 1 and edit.last_line <= max(count, 0)):
            raise AnswerError(
                f"an edit replaces lines {edit.first_line} to {edit.last_line} of `{edit.path}`, which has {count}",
                code="edit-lines",
                remedy="count lines from 1 in the source as it was shown; end_line is the last line replaced",
            )
    for before, after in itertools.pairwise(ordered):
        if before.last_line >= after.first_line:
            raise AnswerError(
                f"edits of `{before.path}` overlap: lines {before.first_line} to {before.last_line}, and "
                f"{after.first_line} to {after.last_line}",
                code="edit-lines",
                remedy="all line numbers are those of the source as it was shown; join the two edits",
            )
    for edit in reversed(ordered):
        new = edit.text.removesuffix("\n").split("\n") if edit.text else []
        lines[edit.first_line - 1 : edit.last_line] = new
    return "\n".join(lines)


def _into_empty(text: str, edit: Edit) -> str:
    if not text.strip():
        return edit.replace
    if edit.near_line:
        lines = text.split("\n")
        lines[edit.near_line : edit.near_line] = edit.replace.strip("\n").split("\n")
        return "\n".join(lines)
    raise AnswerError(
        f"an edit of `{edit.path}` searches for nothing, and the file is not empty",
        code="edit-not-found",
        remedy="put the lines that are to be replaced into SEARCH, or give the whole file",
    )


def _trimmed_alike(search: str, replace: str) -> list[str]:
    """Lines of the replacement, without the blank ones around it that the search has as well."""
    before = len(search) - len(search.lstrip("\n"))
    after = len(search) - len(search.rstrip("\n"))
    lines = replace.split("\n") if replace else []
    while before > 0 and lines and lines[0] == "":
        lines, before = lines[1:], before - 1
    while after > 0 and lines and lines[-1] == "":
        lines, after = lines[:-1], after - 1
    return lines


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where these lines stand, the first few places."""
    text, part = "\n" + "\n".join(lines) + "\n", "\n" + "\n".join(wanted) + "\n"
    found: list[int] = []
    start = text.find(part)
    while start >= 0 and len(found) < MAXIMUM_PLACES:
        found.append(text.count("\n", 0, start))
        start = text.find(part, start + 1)
    return found


def _only(
    places: Sequence[int], edit: Edit, lines: Sequence[str], count: int, *, is_part: bool = False
) -> int:
    if len(places) == 1 and not is_part:
        return places[0]
    if edit.near_line and not is_part:
        by_distance = sorted(places, key=lambda place: abs(place + 1 - edit.near_line))
        if abs(by_distance[0] + 1 - edit.near_line) < abs(by_distance[1] + 1 - edit.near_line):
            return by_distance[0]
    where = ", ".join(str(place + 1) for place in places[:8])
    raise AnswerError(
        f"an edit of `{edit.path}` fits at {max(len(places), 2)} places, lines {where}:\n"
        f"{_excerpt(lines, places[0], count)}",
        code="edit-ambiguous",
        remedy="add lines above or below to SEARCH until it fits one place only",
    )


def _apply_loosely(lines: Sequence[str], wanted: Sequence[str], new: list[str], edit: Edit) -> str:
    stripped = [line.rstrip() for line in lines]
    target = [line.rstrip() for line in wanted]
    while target and not target[0]:
        target, new = target[1:], new[1:] if new and not new[0].strip() else new
    while target and not target[-1]:
        target, new = target[:-1], new[:-1] if new and not new[-1].strip() else new
    places = _places(stripped, target) if target else []
    shifted = _shifted_places(stripped, target) if target and not places else {}
    if places or shifted:
        place = _only(places or list(shifted), edit, lines, len(target))
        moved = [_moved(line, *shifted[place]) for line in new] if shifted else new
        return "\n".join([*lines[:place], *moved, *lines[place + len(target) :]])
    raise AnswerError(
        f"an edit of `{edit.path}` searches for lines that are not there:\n{_excerpt(wanted, 0, len(wanted), numbered=False)}\n"
        f"{_nearest(lines, target or list(wanted))}",
        code="edit-not-found",
        remedy="copy SEARCH word for word from the source as it is now, or give the whole file",
    )


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _shifted_places(lines: Sequence[str], wanted: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Places where the lines fit if each is indented by the same amount more or less: what to cut off, and to add."""
    found = {}
    bare = [line.lstrip() for line in lines]
    for index in _places(bare, [line.lstrip() for line in wanted]):
        shifts = {
            _shift(_indent(there), _indent(line))
            for there, line in zip(lines[index : index + len(wanted)], wanted, strict=True)
            if line
        }
        if len(shifts) == 1 and None not in shifts:
            (shift,) = shifts
            if shift is not None:
                found[index] = shift
    return found


def _shift(there: str, here: str) -> tuple[str, str] | None:
    if there.endswith(here):
        return "", there[: len(there) - len(here)]
    if here.endswith(there):
        return here[: len(here) - len(there)], ""
    return None


def _moved(line: str, cut: str, add: str) -> str:
    return add + line.removeprefix(cut) if line.strip() else line


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """The place that is most like the lines wanted, for the message."""
    bare = [line.strip() for line in lines[:COMPARED_LINES]]
    target = [line.strip() for line in wanted[:60]]
    # Lines that are there count where they would begin; short ones are like many.
    weights: Counter[int] = Counter()
    for number, line in enumerate(target):
        for index, there in enumerate(bare):
            if line and line == there:
                weights[max(index - number, 0)] += min(len(line), 40)
    best = max(weights, key=lambda index: (weights[index], -index), default=-1)
    if best < 0:
        first = max(target[:40], key=len, default="")[:200]
        like = get_close_matches(first, [line[:200] for line in bare[:2000] if line], n=1, cutoff=0.5)
        if not like:
            return "Nothing like them is in the file."
        best = next(index for index, line in enumerate(bare) if line[:200] == like[0])
        best = max(best - target.index(first), 0) if first in target else best
    return f"The nearest is at line {best + 1}:\n{_excerpt(lines, best, len(wanted))}"


def _excerpt(lines: Sequence[str], first: int, count: int, *, numbered: bool = True) -> str:
    end = min(first + count, len(lines))
    rows = [
        (f"{index + 1:5d} | " if numbered else "      | ") + lines[index][:160]
        for index in range(first, min(end, first + SHOWN_LINES))
    ]
    left = end - first - len(rows)
    return "\n".join([*rows, *([f"      | … {counted(left, 'more line')}"] if left > 0 else [])])


LOOKS = re.compile(r"^--- \S.*\n\+\+\+ \S.*\n@@", re.MULTILINE)
HUNK = re.compile(r"^@@(?:[ \t]*-(\d+)(?:,(\d+))?[ \t]+\+(\d+)(?:,\d+)?)?.*$")
FORBIDDEN = re.compile(
    r"^(?:(?:rename|copy) (?:from|to) |similarity index|(?:new|deleted) file mode 1[26]|deleted file mode|"
    r"(?:old|new) mode |GIT binary patch|Binary files )"
)
FUZZ = 2
"""Lines at a hunk's ends that need not fit."""


def is_diff(text: str) -> bool:
    """Whether a text that nobody calls a diff is one."""
    return LOOKS.search(text) is not None


def read_diff(text: str, named: str, own: Sequence[str], left_out: list[str]) -> list[Edit]:
    """The edits of a diff, in order.

    Args:
        text: one diff, of one or several files.
        named: the file that is meant where the diff does not say it; "" for none.
        own: the kernel's own sources.
        left_out: gets the names of tests and benchmarks that it adds.

    Raises:
        AnswerError: it touches another file, renames or deletes one, or has no hunks.
    """
    found: list[Edit] = []
    path, lines = named, text.split("\n")
    is_left_out = False
    index = 0
    while index < len(lines):
        line = lines[index]
        if FORBIDDEN.match(line):
            raise own_files.foreign(line, own, what="renames, deletes or changes the mode of a file:")
        if line.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ "):
            added = re.sub(r"^b/|\t.*$", "", lines[index + 1][4:].strip())
            is_left_out = line.startswith("--- /dev/null") and own_files.is_companion(added, own)
            if is_left_out:
                left_out.append(added)
            else:
                path = _target(line[4:], lines[index + 1][4:], own)
            index += 2
            continue
        hunk = HUNK.match(line)
        if hunk:
            end = _end(lines, index + 1)
            if not is_left_out:
                found.append(_edit(lines[index + 1 : end], hunk, path or _sole(own)))
            index = end
            continue
        index += 1
    if not found and not is_left_out:
        raise AnswerError(
            "a block called a diff has no hunks (`@@ … @@`)",
            code="edit-not-found",
            remedy="give the whole file, or SEARCH/REPLACE blocks",
        )
    return [edit for edit in found if edit.search != edit.replace]


def apply_hunk(text: str, edit: Edit) -> str:
    """The text with one hunk applied; up to two lines at its ends need not fit.

    Raises:
        AnswerError: `edit-not-found` or `edit-ambiguous`.
    """
    try:
        return apply_edit(text, edit)
    except AnswerError as error:
        if error.code != "edit-not-found":
            raise
        first = error
    for less in range(1, FUZZ + 1):
        search, new = edit.search.split("\n"), edit.replace.split("\n")
        head = less if search[:less] == new[:less] else 0
        tail = less if search[-less:] == new[-less:] else 0
        for begin, end in ((head, 0), (0, tail), (head, tail)):
            short, shorter = (lines[begin : len(lines) - end] for lines in (search, new))
            if (begin or end) and any(line.strip() for line in short) and short != shorter:
                with suppress(AnswerError):
                    return apply_edit(
                        text, replace(edit, search="\n".join(short), replace="\n".join(shorter))
                    )
    raise first


def _end(lines: Sequence[str], index: int) -> int:
    while index < len(lines):
        line = lines[index]
        if HUNK.match(line) or line.startswith("diff --git "):
            break
        if line.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ "):
            break
        index += 1
    return index


def _edit(lines: Sequence[str], hunk: re.Match[str], path: str) -> Edit:
    body = list(lines)
    while body and body[-1].strip() == "":
        body.pop()
    search, new = [], []
    for line in body:
        mark, rest = line[:1], line[1:]
        if mark == "\\":
            continue
        if mark not in ("+", "-", " "):
            rest = line  # a line of context whose space was lost
        if mark != "+":
            search.append(rest)
        if mark != "-":
            new.append(rest)
    line_number = int(hunk[1]) if hunk[1] else 0
    return Edit(path=path, search="\n".join(search), replace="\n".join(new), near_line=line_number)


def _target(old: str, new: str, own: Sequence[str]) -> str:
    names = [re.sub(r"\t.*$", "", name).strip() for name in (old, new)]
    if names[1] == "/dev/null":
        raise own_files.foreign(names[0], own, what="deletes")
    plain = [re.sub(r"^[ab]/", "", name) if name not in own else name for name in names]
    target = own_files.resolve(plain[1], own)
    if names[0] != "/dev/null" and own_files.resolve(plain[0], own) != target:
        raise own_files.foreign(names[1], own, what="renames a file to")
    return target


def _sole(own: Sequence[str]) -> str:
    if len(own) != 1:
        raise AnswerError(
            "a diff does not say which file it is of",
            code="which-file",
            remedy="begin it with --- a/PATH and +++ b/PATH",
        )
    return own[0]
