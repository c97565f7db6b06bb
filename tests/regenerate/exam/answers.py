"""Answers as files: a head of `name: value` lines, a line `---`, and then the answer, to the byte.

    title: the last element of each row is missing
    expected: failed                    outcomes of the attempt, any of which is right
    reason: unwritten gold-mismatch     codes, likewise
    told: unwritten                     what the next prompt must say
    reply: length                       how the server ends it: stop, length, refusal or tools
    ---
    The loop bound was wrong …

A right answer has nothing but its title.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.regenerate.llm_server import Reply

FOLDER = Path(__file__).parent
HEAD = frozenset({"title", "expected", "reason", "told", "reply"})


@dataclass(frozen=True)
class Written:
    """One answer of the exam."""

    name: str
    """Of its file."""
    title: str
    """What is wrong with it, or odd."""
    expected: tuple[str, ...]
    """Outcomes of the attempt, any of which is right."""
    reasons: tuple[str, ...]
    """Codes, likewise."""
    told: str
    """What the next prompt must say."""
    ending: str
    """How the server ends it."""
    text: str
    """The answer itself."""

    def reply(self) -> Reply:
        """What the server sends."""
        if self.ending == "refusal":
            return Reply.refusing(self.text.strip())
        if self.ending == "tools":
            return Reply.calling(arguments=self.text.strip())
        return Reply(text=self.text, finish=self.ending)


def collect(folder: str) -> list[Written]:
    """All answers of a folder, in the order of their names.

    Raises:
        ValueError: a head has a line that is none.
    """
    return [_read(file) for file in sorted((FOLDER / folder).glob("*.md"))]


def _read(file: Path) -> Written:
    head, _, text = file.read_bytes().decode().partition("---\n")
    lines = dict(line.split(": ", 1) for line in head.splitlines())
    if not lines.keys() <= HEAD or "title" not in lines:
        raise ValueError(f"{file.name}: {sorted(lines)}")
    return Written(
        name=file.stem,
        title=lines["title"],
        expected=tuple(lines.get("expected", "accepted").split()),
        reasons=tuple(lines.get("reason", "ok").split()),
        told=lines.get("told", ""),
        ending=lines.get("reply", "stop"),
        text=text,
    )
