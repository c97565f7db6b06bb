"""Unified diffs as models write them, read as edits.

Line counts of hunks are not looked at, which models get wrong more often than not: a hunk is the text that it removes
and keeps, and the text that it keeps and adds. That is why no library for patches serves here. The line number of a
hunk only decides between places that fit equally well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.answers import edits, own_files

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


def read(text: str, named: str, own: Sequence[str]) -> list[edits.Edit]:
    """The edits of a diff, in order.

    Args:
        text: one diff, of one or several files.
        named: the file that is meant where the diff does not say it; "" for none.
        own: the kernel's own sources.

    Raises:
        AnswerError: it touches another file, renames or deletes one, or has no hunks.
    """
    found: list[edits.Edit] = []
    path, lines = named, text.split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        if FORBIDDEN.match(line):
            raise own_files.foreign(line, own, what="renames, deletes or changes the mode of a file:")
        if line.startswith("--- ") and index + 1 < len(lines) and lines[index + 1].startswith("+++ "):
            path = _target(line[4:], lines[index + 1][4:], own)
            index += 2
            continue
        hunk = HUNK.match(line)
        if hunk:
            end = _end(lines, index + 1)
            found.append(_edit(lines[index + 1 : end], hunk, path or _sole(own)))
            index = end
            continue
        index += 1
    if not found:
        raise AnswerError(
            "a block called a diff has no hunks (`@@ … @@`)",
            code="edit-not-found",
            remedy="give the whole file, or SEARCH/REPLACE blocks",
        )
    return [edit for edit in found if edit.search != edit.replace]


def apply(text: str, edit: edits.Edit) -> str:
    """The text with one hunk applied; up to two lines at its ends need not fit.

    Raises:
        AnswerError: `edit-not-found` or `edit-ambiguous`.
    """
    try:
        return edits.apply_edit(text, edit)
    except AnswerError as error:
        if error.code != "edit-not-found":
            raise
        first = error
    for less in range(1, FUZZ + 1):
        search, new = edit.search.split("\n"), edit.replace.split("\n")
        head = less if search[:less] == new[:less] else 0
        tail = less if search[-less:] == new[-less:] else 0
        for begin, end in ((head, 0), (0, tail), (head, tail)):
            short = search[begin : len(search) - end]
            if (
                (begin or end)
                and any(line.strip() for line in short)
                and short != new[begin : len(new) - end]
            ):
                shorter = replace(
                    edit, search="\n".join(short), replace="\n".join(new[begin : len(new) - end])
                )
                try:
                    return edits.apply_edit(text, shorter)
                except AnswerError:
                    continue
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


def _edit(lines: Sequence[str], hunk: re.Match[str], path: str) -> edits.Edit:
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
    return edits.Edit(path=path, search="\n".join(search), replace="\n".join(new), near_line=line_number)


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
