"""From an answer to a candidate that is worth a trial: what it says, whether it is new, and what a static check has against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate import answers, guard
from pytest_cgins.regenerate.model import INCUMBENT, Answer, Ask, Attempt, Finding, Goal

Check = Callable[[Mapping[str, str]], tuple[Finding, ...]]
"""The static check of sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What was read from an answer."""

    attempt: Attempt
    """As far as it is known."""
    sources: Mapping[str, str]
    """By path; {} if the answer had none."""
    is_triable: bool
    """Whether these are to be built and run."""


class Screen:
    """Reads the answers about one target.

    Args:
        goal: of the target.
        incumbent: sources as they are in the project, by path, main file first.
        check: the static check.
    """

    def __init__(self, goal: Goal, incumbent: Mapping[str, str], check: Check) -> None:
        self._goal = goal
        self._paths = tuple(incumbent)
        self._check = check
        self._seen = {guard.digest_of_sources(incumbent): INCUMBENT}

    def read(self, number: int, ask: Ask, answer: Answer, shown: Mapping[str, str]) -> Candidate:
        """What an answer is.

        Args:
            number: of the attempt.
            ask: what its prompt was made for.
            answer: to its prompt.
            shown: sources that the prompt had, by path: edits are edits of these.
        """
        attempt = Attempt(number=number, goal=self._goal, outcome="refused", reason="", message="", ask=ask)
        try:
            draft = answers.read(answer, shown)
        except AnswerError as error:
            attempt = replace(attempt, outcome="unusable", reason=error.code, message=str(error))
            return Candidate(attempt=attempt, sources={}, is_triable=False)
        sources = {path: draft.files[path] for path in self._paths}
        attempt = replace(attempt, digest=guard.digest_of_sources(sources))
        if attempt.digest in self._seen:
            same = self._seen[attempt.digest]
            text = f"the same source as {f'that of attempt {same}' if same else 'the one that is to be replaced'}"
            text += ": write another one"
            attempt = replace(attempt, outcome="unusable", reason="repeated", message=text)
            return Candidate(attempt=attempt, sources=sources, is_triable=False)
        findings = self._check(sources)
        if findings:
            message = "\n".join(f"{finding.file}:{finding.line}: {finding.message}" for finding in findings)
            attempt = replace(attempt, reason=findings[0].code, message=message, findings=findings)
        return Candidate(attempt=attempt, sources=sources, is_triable=not findings)

    def remember(self, attempt: Attempt) -> None:
        """That these sources were there; a later answer with the same is no candidate."""
        if attempt.digest:
            self._seen.setdefault(attempt.digest, attempt.number)
