"""`report.md` of a proposal. Names, messages, sources and models' words in it come from anybody.

Such text stands in HTML `code` elements, and the patch in a fence that is longer than any in it. Neither can begin a
tag, a table, a link, a mention or a reference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_cgins.core.model import SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.proposal import figures
from pytest_cgins.regenerate.proposal.model import Proposal
from pytest_cgins.report.escape import block, code, no_command, visible

LIMIT = 60_000
"""Most characters: GitHub refuses a body with more than 65,536."""
PATCH_LENGTH = 22_000
LINE_LENGTH = 400
MESSAGES = 5
"""Failures of before whose messages are shown."""
MESSAGE_LENGTH = 1200
NAME_LENGTH = 200
TEXT_LENGTH = 600
WRONG_LENGTH = 12_000
"""Characters of them all."""
NOTES = 20
SEARCH_LINES = 25
SEARCH_LENGTH = 300
CASES_LENGTH = 16_000
"""Characters of the table of cases."""
ATTEMPTS = 20
SHORTENED = "\n<p>… shortened: the whole is in proposal.json, evidence.json and patch.diff.</p>\n"


def render(proposal: Proposal, evidence: SessionReport, patch: bytes) -> str:
    """Markdown of at most `LIMIT` characters; what does not fit is counted.

    Args:
        proposal: what it says of itself, validated.
        evidence: of the acceptance.
        patch: patch.diff.
    """
    mind = f"<p>{figures.OWN_WORDS}</p>\n" * figures.has_own_words(proposal)
    parts = [
        f"## {inline(proposal.title)}\n\n<p>{figures.goal(proposal)}</p>\n{mind}",
        _notes(figures.notes(proposal, evidence)),
        _wrong(figures.wrong_before(proposal)),
        _cases(figures.rows(proposal, evidence)),
        _patch(patch),
        _facts(figures.facts(proposal, evidence)),
        _search(proposal.search),
        _attempts(proposal),
        f"\n### Again\n\n<p>{inline(proposal.command, 2 * TEXT_LENGTH)}</p>\n",
    ]
    text, room = "", LIMIT - len(SHORTENED)
    for part in parts:
        # A part is shown whole or not at all: a cut one could leave an element or a fence open.
        if len(text) + len(part) <= room:
            text += part
    return text if all(part in text for part in parts) else text + SHORTENED


def fenced(patch: bytes) -> str:
    """The beginning of a patch in a fence of markdown, out of which nothing in it gets."""
    lines = [_line(line) for line in patch.decode("utf-8", "replace").split("\n")[:-1]]
    shown: list[str] = []
    room = PATCH_LENGTH
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    left_out = len(lines) - len(shown)
    more = f"\n<p>… {counted(left_out, 'more line')}: patch.diff has them all.</p>\n" if left_out else ""
    body = "\n".join(shown)
    return f"\n{fence}diff\n{body}\n{fence}\n{more}"


def _line(line: str) -> str:
    text = no_command(visible(line.removesuffix("\r").expandtabs(4)))
    return text if len(text) <= LINE_LENGTH else f"{text[:LINE_LENGTH]} … ({len(text) - LINE_LENGTH} more)"


def inline(text: str, length: int = TEXT_LENGTH) -> str:
    """Any text in a `code` element, cut to a length in characters, without mentions and references."""
    return _neutral(code(text, length=length))


def _neutral(escaped: str) -> str:
    """Escaped text without the signs that begin a mention or a reference, for readers that look at the source."""
    return re.sub(r"(?<!&)#", "&#35;", escaped.replace("@", "&#64;"))


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    lines = "".join(f"<li>{inline(note)}</li>\n" for note in notes[:NOTES])
    more = f"<li>… {len(notes) - NOTES} more</li>\n" if len(notes) > NOTES else ""
    return f"\n### Mind\n\n<ul>\n{lines}{more}</ul>\n"


def _wrong(failures: Sequence[tuple[str, str]]) -> str:
    if not failures:
        return ""
    text, shown = "\n### What was wrong\n\n", 0
    for what, message in failures[:MESSAGES]:
        said = _neutral(block(message, length=MESSAGE_LENGTH)) if message else ""
        part = f"<p>{inline(what)}</p>{said}\n"
        if len(text) + len(part) > WRONG_LENGTH:
            break
        text, shown = text + part, shown + 1
    left_out = len(failures) - shown
    return text + (f"<p>… {counted(left_out, 'more case')} failed.</p>\n" if left_out > 0 else "")


def _search(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    shown = "".join(f"<li>{inline(line, SEARCH_LENGTH)}</li>\n" for line in lines[:SEARCH_LINES])
    left_out = len(lines) - SEARCH_LINES
    more = f"<li>… {left_out} more</li>\n" if left_out > 0 else ""
    return f"\n### What the search found\n\n<ul>\n{shown}{more}</ul>\n"


def _cases(rows: tuple[figures.Row, ...]) -> str:
    columns = figures.kept_columns(rows)
    head = "".join(f"<th>{figures.COLUMNS[index]}</th>" for index in columns)
    lines: list[str] = []
    room = CASES_LENGTH
    for row in rows:
        cells = "".join(f"<td>{_cell(index, row.cells[index])}</td>" for index in columns)
        line = f"<tr>{cells}</tr>\n"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    left_out = len(rows) - len(lines)
    more = f"<p>… {counted(left_out, 'more case')}: evidence.json has them all.</p>\n" if left_out else ""
    return f"\n### Before and after\n\n<table>\n<tr>{head}</tr>\n{''.join(lines)}</table>\n{more}"


def _cell(index: int, text: str) -> str:
    # All but the name are words and figures of our own.
    return inline(text, NAME_LENGTH) if index == 0 else text


def _patch(patch: bytes) -> str:
    return f"\n### Patch\n{fenced(patch)}"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><td>{word}</td><td>{inline(text)}</td></tr>\n" for word, text in facts)
    return f"\n### How it was made\n\n<table>\n{lines}</table>\n"


def _attempts(proposal: Proposal) -> str:
    if len(proposal.attempts) < 2:
        return ""
    head = "<tr><th>attempt</th><th>outcome</th><th>why</th></tr>\n"
    lines = "".join(
        f"<tr><td>{one.number}</td><td>{one.outcome}</td><td>{inline(f'{one.reason}: {one.message}', 300)}</td></tr>\n"
        for one in proposal.attempts[-ATTEMPTS:]
    )
    left_out = len(proposal.attempts) - ATTEMPTS
    more = f"<p>… {counted(left_out, 'earlier one')}.</p>\n" if left_out > 0 else ""
    return f"\n<table>\n{head}{lines}</table>\n{more}"
