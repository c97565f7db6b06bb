"""What verifiers say of a candidate that nobody has run, and how often they were right.

Their word orders the queue and decides nothing: what they doubt is tried later, or not at all where there is no time for
all. Each is scored by what the gate found of what was tried, question by question: their product orders the queue,
and hides whose opinion is worth having. In robust-kbench's own log the verifier of memory says no to most kernels that
were right.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.attempt import Attempt
from pytest_cgins.regenerate.journal.journal import Journal

QUESTIONS = {
    "compiles": "it compiles without errors",
    "memory": "every access is inside of its tensor, and threads do not race",
    "numbers": "its results are those of the op, in every case of the contract",
}
"""What is asked, by the word that an answer's line begins with."""
MEMORY_REASONS = (
    Reason.OUT_OF_BOUNDS, Reason.INPUT_CHANGED, Reason.CRASHED, Reason.ABORTED, Reason.ILLEGAL_ADDRESS, Reason.NOT_REPEATABLE,
    Reason.MEMCHECK, Reason.RACECHECK, Reason.INITCHECK, Reason.SYNCCHECK,
)  # fmt: skip
"""What the gate finds where a kernel's accesses are wrong, or its threads race."""
_APART_FROM_NUMBERS = (Reason.MEMORY_USE, Reason.MEMORY_LEAK, Reason.NOT_ON_STREAM)
"""With which a kernel may be `INCORRECT` whose results are right."""
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


def rank(texts: Iterable[str]) -> float:
    """How likely a candidate is right, as answers say: the chance that all holds, as a mean over them; 0.5 where none says.

    The mean of an answer's chances called 37 of 48 wrong kernels right, their product 5 (`results/verifiers.md`).
    """
    chances = [math.prod(said.values()) for text in texts if (said := opinions_by_question(text))]
    return sum(chances) / len(chances) if chances else 0.5


def opinions_by_question(text: str) -> dict[str, float]:
    """Chances that an answer gives, 0 to 1, of the questions that it has a line for: `compiles: 90%`."""
    found = {match["what"].lower(): min(100, int(match["share"])) / 100 for match in _LINE.finditer(text)}
    return {name: found[name] for name in QUESTIONS if name in found}


def score(attempts: Iterable[Attempt]) -> Score:
    """Of the ranks, over all candidates that were ranked and tried."""
    tried = (attempt for attempt in attempts if attempt.trials)
    return _score([(one.rank >= 0.5, one.is_right) for one in tried if one.rank is not None])


def _score(pairs: list[tuple[bool, bool]]) -> Score:
    """Of pairs: whether an opinion says "right", and whether the candidate was."""
    return Score(
        right_and_said_so=pairs.count((True, True)),
        wrong_and_said_right=pairs.count((True, False)),
        right_and_doubted=pairs.count((False, True)),
        wrong_and_doubted=pairs.count((False, False)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierScore(Document):
    """One model's opinions on one question."""

    model: str
    """Who was asked."""
    question: str
    """`compiles`, `memory` or `numbers`."""
    score: Score
    """An opinion of at least one half says "right"; what the gate found is the truth."""


def scores(journal: Journal) -> tuple[VerifierScore, ...]:
    """Of all models and questions of a run, over candidates that were tried."""
    attempts = {
        f"{target.name}/attempt-{one.number:02d}": one
        for target in journal.record.targets
        for one in journal.attempts(target)
    }
    opinions: dict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for request, answer in journal.answered():
        attempt = attempts.get(request.id.rpartition("/")[0])
        if request.role != "verifier" or attempt is None:
            continue
        facts = truths(attempt)
        for question, chance in opinions_by_question(answer.text).items():
            if question in facts:
                opinions[request.model, question].append((chance >= 0.5, facts[question]))
    order = list(QUESTIONS)
    return tuple(
        VerifierScore(model=model, question=question, score=_score(pairs))
        for (model, question), pairs in sorted(
            opinions.items(), key=lambda item: (item[0][0], order.index(item[0][1]))
        )
    )


def truths(attempt: Attempt) -> dict[str, bool]:
    """What the gate found of a candidate, by question; without those that it did not get to.

    A kernel that was not built tells nothing of its numbers, and so does one that crashed.
    """
    verdicts = [evaluation.verdict for trial in attempt.trials for evaluation in trial.evaluations]
    if not verdicts:
        return {}
    if any(verdict.status is Status.BUILD_ERROR for verdict in verdicts):
        return {"compiles": False}
    if any(verdict.reason in MEMORY_REASONS for verdict in verdicts):
        return {"compiles": True, "memory": False}
    found = {"compiles": True, "memory": True}
    wrong = (verdict.reason for verdict in verdicts if verdict.status is Status.INCORRECT)
    if any(reason not in _APART_FROM_NUMBERS for reason in wrong):
        return {**found, "numbers": False}
    return {**found, "numbers": True} if attempt.is_right else found
