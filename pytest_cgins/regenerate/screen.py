"""From an answer to a candidate that is worth a trial: what it says, whether it is new, and what a static check has against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate import answers, guard
from pytest_cgins.regenerate.model import INCUMBENT, Answer, Attempt, Finding, Goal

Check = Callable[[Mapping[str, str]], tuple[Finding, ...]]
"""The static check of sources."""


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

    def read(
        self, number: int, answer: Answer, shown: Mapping[str, str]
    ) -> tuple[Attempt, dict[str, str], bool]:
        """What an answer is.

        Args:
            number: of the attempt.
            answer: to its prompt.
            shown: sources that the prompt had, by path: edits are edits of these.

        Returns:
            The attempt as far as it is known, its sources, {} if it had none, and whether these are to be tried.
        """
        made = Attempt(number=number, goal=self._goal, outcome="refused", reason="", message="")
        try:
            draft = answers.read(answer, shown)
        except AnswerError as error:
            return replace(made, outcome="unusable", reason=error.code, message=str(error)), {}, False
        sources = {path: draft.files[path] for path in self._paths}
        made = replace(made, digest=guard.digest_of_sources(sources))
        if made.digest in self._seen:
            same = self._seen[made.digest]
            text = f"the same source as {f'that of attempt {same}' if same else 'the one that is to be replaced'}"
            text += ": write another one"
            return replace(made, outcome="unusable", reason="repeated", message=text), sources, False
        findings = self._check(sources)
        if findings:
            told = "\n".join(f"{one.file}:{one.line}: {one.message}" for one in findings)
            return (
                replace(made, reason=findings[0].code, message=told, findings=findings), sources, False
            )  # fmt: skip
        return made, sources, True

    def remember(self, attempt: Attempt) -> None:
        """That these sources were there; a later answer with the same is no candidate."""
        if attempt.digest:
            self._seen.setdefault(attempt.digest, attempt.number)
