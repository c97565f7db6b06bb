"""How well each verifier tells right candidates from wrong ones, question by question, by what the gate found.

The mean of opinions orders the queue; this says whose opinion is worth having. In robust-kbench's own log the verifier
of memory says no to most kernels that were right, and a mean hides that.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.model import Reason, Status
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.model import Attempt
from pytest_cgins.regenerate.search.verifiers import QUESTIONS, Score, said

MEMORY_REASONS = (
    Reason.OUT_OF_BOUNDS, Reason.INPUT_CHANGED, Reason.CRASHED, Reason.ABORTED, Reason.ILLEGAL_ADDRESS, Reason.NOT_REPEATABLE,
    Reason.MEMCHECK, Reason.RACECHECK, Reason.INITCHECK, Reason.SYNCCHECK,
)  # fmt: skip
"""What the gate finds where a kernel's accesses are wrong, or its threads race."""


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
    found: dict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for request, answer in journal.answered():
        attempt = attempts.get(request.id.rpartition("/")[0])
        if request.role != "verifier" or attempt is None:
            continue
        facts = truths(attempt)
        for question, chance in said(answer.text).items():
            if question in facts:
                found[request.model, question].append((chance >= 0.5, facts[question]))
    order = list(QUESTIONS)
    return tuple(
        VerifierScore(model=model, question=question, score=_score(pairs))
        for (model, question), pairs in sorted(
            found.items(), key=lambda one: (one[0][0], order.index(one[0][1]))
        )
    )


def truths(attempt: Attempt) -> dict[str, bool]:
    """What the gate found of a candidate, by question; without those that it did not get to.

    A kernel that was not built tells nothing of its numbers, and so does one that crashed.
    """
    verdicts = [one.verdict for trial in attempt.trials for one in trial.evaluations]
    if not verdicts:
        return {}
    if any(one.status is Status.BUILD_ERROR for one in verdicts):
        return {"compiles": False}
    if any(one.reason in MEMORY_REASONS for one in verdicts):
        return {"compiles": True, "memory": False}
    found = {"compiles": True, "memory": True}
    if any(one.status is Status.INCORRECT for one in verdicts):
        return {**found, "numbers": False}
    return {**found, "numbers": True} if attempt.is_right else found


def _score(pairs: list[tuple[bool, bool]]) -> Score:
    return Score(
        right_and_said_so=pairs.count((True, True)),
        wrong_and_said_right=pairs.count((True, False)),
        right_and_doubted=pairs.count((False, True)),
        wrong_and_doubted=pairs.count((False, False)),
    )
