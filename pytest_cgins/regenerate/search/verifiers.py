"""What verifiers say of a candidate that nobody has run, and how often they were right.

Their word orders the queue and decides nothing: what they doubt is tried later, or not at all where there is no time for
all. Each is scored by what the gate found of what was tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.model import Attempt

QUESTIONS = {
    "compiles": "it compiles without errors",
    "memory": "every access is inside of its tensor, and threads do not race",
    "numbers": "its results are those of the op, in every case of the contract",
}
"""What is asked, by the word that an answer's line begins with."""
_LINE = re.compile(r"^\W*(?P<what>\w+)\W*:\W*(?P<share>\d{1,3})\s*%", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Document):
    """How well opinions told right candidates from wrong ones; an opinion of at least one half says "right"."""

    right_and_said_so: int
    """True positives."""
    wrong_and_said_right: int
    """False positives."""
    right_and_doubted: int
    """False negatives."""
    wrong_and_doubted: int
    """True negatives."""

    @property
    def precision(self) -> float | None:
        """Of those that it said are right, the share that was; None where there were none."""
        said = self.right_and_said_so + self.wrong_and_said_right
        return self.right_and_said_so / said if said else None

    @property
    def recall(self) -> float | None:
        """Of those that were right, the share that it said so of; None where there were none."""
        right = self.right_and_said_so + self.right_and_doubted
        return self.right_and_said_so / right if right else None


def opinions(text: str) -> list[float]:
    """Chances that an answer gives, 0 to 1, one a question that it has a line for: `compiles: 90%`."""
    return list(said(text).values())


def said(text: str) -> dict[str, float]:
    """The same by question, in the order of `QUESTIONS`."""
    found = {match["what"].lower(): min(100, int(match["share"])) / 100 for match in _LINE.finditer(text)}
    return {name: found[name] for name in QUESTIONS if name in found}


def score(attempts: Iterable[Attempt]) -> Score:
    """Over all candidates that were ranked and tried."""
    tried = [(one.rank >= 0.5, one.is_right) for one in attempts if one.rank is not None and one.trials]
    return Score(
        right_and_said_so=tried.count((True, True)),
        wrong_and_said_right=tried.count((True, False)),
        right_and_doubted=tried.count((False, True)),
        wrong_and_doubted=tried.count((False, False)),
    )
