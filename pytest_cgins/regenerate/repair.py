"""One kernel, from its first prompt to an accepted candidate or the end of its attempts.

`Repair.steps` is a generator that yields what it wants to be answered, so that many kernels wait for answers at once
while each candidate has the machine for itself. It keeps nothing that is not in the journal: a run that was killed goes
through the same steps again, and finds the answers and verdicts of those that were done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.events import Event, Stage
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.judgement import Goalposts, accepted, judged
from pytest_cgins.regenerate.model import (
    Advice,
    Answer,
    Attempt,
    Message,
    Request,
    Result,
    Role,
    Target,
)
from pytest_cgins.regenerate.screen import Check, Screen
from pytest_cgins.regenerate.trial import Bench, rejections

Steps = Generator[tuple[Request, ...], tuple[Answer, ...], Result]
"""Yields requests, all of which can be asked at once, is sent their answers in the same order, and returns what became of
the target. None at all, (): it would go on, and lets other targets go on first."""


class Prompts(Protocol):
    """Makes the prompts of one target."""

    def first(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        """For the generator: with all attempts so far, and the last candidate's sources if there is one."""
        ...

    def advise(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        """For the helper, after an attempt that failed."""
        ...

    def read_advice(self, text: str) -> Advice:
        """What the helper said."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings:
    """What holds for all attempts of a target."""

    attempts: int
    """Most answers of the generator."""
    generators: tuple[str, ...]
    """Models that are asked in turn."""
    helpers: tuple[str, ...]
    """Models that are asked for advice in turn; ("",) for nobody."""
    max_tokens: int
    """Most tokens of an answer."""
    temperature: float | None
    """Of the generator."""
    helper_temperature: float | None
    """Of the helper."""


class Repair:
    """The attempts of one target.

    Args:
        target: what is regenerated.
        journal: where everything is kept.
        bench: tries candidates.
        prompts: makes prompts.
        settings: see there.
        incumbent: sources as they are in the project, by path, main file first.
        check: the static check of sources.
        goalposts: what no candidate may move.
        on_event: told at each stage.
    """

    def __init__(
        self,
        target: Target,
        journal: Journal,
        bench: Bench,
        prompts: Prompts,
        settings: RepairSettings,
        *,
        incumbent: Mapping[str, str],
        check: Check,
        goalposts: Goalposts,
        on_event: Callable[[Event], object],
    ) -> None:
        self.target = target
        self._journal = journal
        self._bench = bench
        self._prompts = prompts
        self._settings = settings
        self._incumbent = dict(incumbent)
        self._screen = Screen(target.goal, incumbent, check)
        self._goalposts = goalposts
        self._on_event = on_event
        self._attempts: list[Attempt] = []
        self._advices: list[Advice] = []
        self._latest = dict(incumbent)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Those that are done."""
        return tuple(self._attempts)

    @property
    def done(self) -> bool:
        """Whether it is known what became of it."""
        return self._journal.result(self.target) is not None

    def steps(self) -> Steps:
        """Attempt after attempt; ends with the first that is accepted."""
        known = self._journal.result(self.target)
        if known is not None:
            return known
        self._journal.go_on(self.target)
        for number in range(1, self._settings.attempts + 1):
            attempt = self._journal.attempt(self.target, number)
            if attempt is None:
                attempt = yield from self._attempt(number)
            else:
                self._remember(attempt, self._journal.sources(self.target, number))
            if attempt.outcome == "accepted":
                return self._ended("accepted", "")
            if attempt.outcome == "tampered":
                return self._ended("failed", attempt.message)
            if number < self._settings.attempts:
                yield from self._advise(number, attempt)
        last = self._attempts[-1].message.partition("\n")[0]
        count = len(self._attempts)
        return self._ended("failed", f"no valid kernel in {counted(count, 'attempt')}; the last: {last}")

    def ended_early(self, state: str, why: str, remedy: str = "") -> Result:
        """What is known of a target that is not done: it waits, or was stopped; words may have several lines."""
        result = replace(
            self._result("waiting" if state == "waiting" else "stopped", " ".join(why.split("\n"))),
            remedy=" ".join(remedy.split("\n")),
        )
        self._journal.keep_result(result, {})
        return result

    # ---- one attempt

    def _attempt(self, number: int) -> Generator[tuple[Request, ...], tuple[Answer, ...], Attempt]:
        self._tell(number, "asking")
        models = self._settings.generators
        request = self._request(
            number,
            "generator",
            models[(number - 1) % len(models)],
            self._settings.temperature,
            lambda: self._prompts.first(self._latest, self.attempts, tuple(self._advices)),
        )
        (answer,) = yield (request,)
        started = time.monotonic()
        attempt, sources = self._tried(number, answer)
        attempt = replace(attempt, seconds=time.monotonic() - started)
        self._journal.keep_attempt(self.target, attempt, sources)
        self._remember(attempt, sources)
        return attempt

    def _tried(self, number: int, answer: Answer) -> tuple[Attempt, dict[str, str]]:
        """From an answer to what became of it, and the sources that it had."""
        made, sources, is_candidate = self._screen.read(number, answer, self._latest)
        return self._on_the_bench(made, sources) if is_candidate else made, sources

    def _on_the_bench(self, made: Attempt, sources: dict[str, str]) -> Attempt:
        self._tell(made.number, "checking")
        check = self._bench.check(sources)
        bad = rejections(check.evaluations, self.target)
        if bad:
            return judged(made, "failed", bad, (check,))
        self._tell(made.number, "accepting")
        # Each candidate that is tried is one more chance to be called faster by luck.
        share = 1 / self._settings.attempts
        acceptance = self._bench.accept(sources, goal=self.target.goal, alpha_share=share)
        made = replace(made, trials=(check, acceptance))
        self._goalposts.require(sources)
        return accepted(made, self.target, self._bench, self._goalposts.touched())

    # ---- advice

    def _advise(
        self, number: int, attempt: Attempt
    ) -> Generator[tuple[Request, ...], tuple[Answer, ...], None]:
        helpers = self._settings.helpers
        # What was wrong with the form of an answer needs nobody's thought.
        if not any(helpers) or attempt.outcome in ("unusable", "refused"):
            return
        known = self._journal.advice(self.target, number)
        if known is None:
            self._tell(number, "asking the helper", attempt.reason)
            request = self._request(
                number,
                "helper",
                helpers[(number - 1) % len(helpers)],
                self._settings.helper_temperature,
                lambda: self._prompts.advise(self._latest, self.attempts, tuple(self._advices)),
            )
            (answer,) = yield (request,)
            known = self._prompts.read_advice(answer.text if answer.finish in ("stop", "length") else "")
            self._journal.keep_advice(self.target, number, known)
        self._advices.append(known)

    # ---- what they share

    def _request(
        self,
        number: int,
        role: Role,
        model: str,
        temperature: float | None,
        messages: Callable[[], tuple[Message, ...]],
    ) -> Request:
        """The request as it was first made, or a new one."""
        name = f"{self.target.name}/attempt-{number:02d}/{role}"
        known = self._journal.read(Request, self._journal.folder / name / "request.json")
        return known or Request(
            id=name,
            role=role,
            model=model,
            messages=messages(),
            max_tokens=self._settings.max_tokens,
            temperature=temperature,
        )

    def _remember(self, attempt: Attempt, sources: Mapping[str, str]) -> None:
        self._attempts.append(attempt)
        if sources:
            self._latest = {path: sources[path] for path in self._incumbent}
            self._screen.remember(attempt)

    def _ended(self, state: str, why: str) -> Result:
        result = self._result("accepted" if state == "accepted" else "failed", why)
        self._journal.keep_result(result, self._latest if self._latest != self._incumbent else {})
        self._tell(len(self._attempts), "done", state)
        return result

    def _result(self, state: str, why: str) -> Result:
        return Result(target=self.target, state=state, attempts=self.attempts, why=why)  # type: ignore[arg-type]

    def _tell(self, number: int, stage: Stage, detail: str = "") -> None:
        self._on_event(
            Event(
                target=self.target.name,
                attempt=number,
                attempts=self._settings.attempts,
                stage=stage,
                detail=detail,
            )
        )
