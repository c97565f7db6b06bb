"""What becomes of a candidate by what the gate says of it: the one place where that is decided."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pytest_cgins.core.errors import AnswerError, RegenerateError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate import answers, guard
from pytest_cgins.regenerate.attempt import INCUMBENT, Ask, Attempt, Finding, Goal, Outcome, Target
from pytest_cgins.regenerate.candidate_gate import rejections
from pytest_cgins.regenerate.conversation import Answer
from pytest_cgins.regenerate.executor.gates import Gate
from pytest_cgins.regenerate.progress import Stage

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


_MOST_SAID = 600
_SOURCES = re.compile(r"^(?:[`~]{3}|<|\*{3} |[{#])", re.MULTILINE)
"""Where an answer's own words end: at a fence, a mark of edits or files, JSON or a heading."""


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
        self._seen = {guard.digest(incumbent): INCUMBENT}

    def read(self, number: int, ask: Ask, answer: Answer, shown: Mapping[str, str]) -> Candidate:
        """What an answer is.

        Args:
            number: of the attempt.
            ask: what its prompt was made for.
            answer: to its prompt.
            shown: sources that the prompt had, by path: edits are edits of these.
        """
        said = _SOURCES.split(answer.text.lstrip(), maxsplit=1)[0]
        attempt = Attempt(
            number=number, goal=self._goal, outcome="refused", reason="", message="", ask=ask,
            said=" ".join(said.split())[:_MOST_SAID],
        )  # fmt: skip
        try:
            draft = answers.read(answer, shown)
        except AnswerError as error:
            attempt = replace(attempt, outcome="unusable", reason=error.code, message=str(error))
            return Candidate(attempt=attempt, sources={}, is_triable=False)
        sources = {path: draft.files[path] for path in self._paths}
        left_out = tuple(
            f"`{name}` is left out: only the kernel's own sources are taken" for name in draft.left_out
        )
        attempt = replace(attempt, digest=guard.digest(sources), complaints=left_out)
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


_SPEEDS = (Status.SLOWER, Status.BELOW_FLOOR, Status.INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedFiles:
    """What a candidate is judged by, in the project and in its own copy of it."""

    moved: Callable[[Mapping[str, str]], tuple[str, ...]]
    """Files of the project that the verdict on these sources depends on, and that are not as they were when the run began."""
    touched: Callable[[], tuple[str, ...]]
    """Files of the candidate's copy that it changed, and that are not its own."""

    def require(self, sources: Mapping[str, str]) -> None:
        """Refuse to judge a candidate by what is not as it was.

        The candidate is not to blame: it has a copy. Nothing is kept of the trial, so that a resumed run repeats it.

        Raises:
            RegenerateError: something changed; all of it is named.
        """
        moved = self.moved(sources)
        if moved:
            raise moved_error(moved)


def moved_error(moved: tuple[str, ...]) -> RegenerateError:
    """What is said of goalposts that are not where they were."""
    return RegenerateError(
        f"changed since the run began: {', '.join(moved)}",
        remedy="undo that and resume the run, which keeps all answers; or start a new run",
    )


@dataclass(eq=False, repr=False)
class Judge:
    """Tries the candidates of one target, and says what became of each."""

    target: Target
    """What is regenerated."""
    gate: Gate
    """Runs candidates."""
    goalposts: GuardedFiles
    """What no candidate may move."""
    tell: Callable[[int, Stage], object]
    """Told the number of a candidate and what it is at."""

    def check(self, attempt: Attempt, sources: Mapping[str, str]) -> tuple[Attempt, bool]:
        """A candidate after the cases on the inputs of the run, and whether it passed them all."""
        self.tell(attempt.number, "checking")
        attempt = replace(attempt, trials=(self.gate.check(sources),))
        self.goalposts.require(sources)
        if touched := self.goalposts.touched():
            return _tampered(attempt, touched), False
        bad = rejections(attempt.trials[-1].evaluations, self.target)
        return (_rejected(attempt, "failed", bad), False) if bad else (attempt, True)

    def time(
        self,
        attempt: Attempt,
        sources: Mapping[str, str],
        champion: Attempt,
        champion_sources: Mapping[str, str] | None,
    ) -> Attempt:
        """A candidate that passed its check, after it was timed beside the best one until then.

        Args:
            attempt: the candidate.
            sources: its sources.
            champion: the best one.
            champion_sources: its sources; None for the incumbent.
        """
        self.tell(attempt.number, "timing")
        times = self.gate.times(sources, champion_sources)
        attempt = replace(attempt, trials=(*attempt.trials, times))
        rejected = rejections(times.evaluations, self.target)
        bad = tuple(evaluation for evaluation in rejected if evaluation.verdict.status not in _SPEEDS)
        if bad:
            return _rejected(attempt, "failed", bad)
        ratio = time_ratio(times.evaluations)
        base = champion.time_ratio or 1.0
        statuses = {evaluation.verdict.status for evaluation in times.evaluations}
        # Proven faster in a case, and slower in none.
        beats = attempt.ask.kind != "ablate" and Status.FASTER in statuses and Status.SLOWER not in statuses
        return replace(
            attempt,
            outcome="right",
            reason="faster" if beats else "not-faster",
            message="no time could be compared"
            if ratio is None
            else f"{ratio:.3f} times the time of the best until then",
            time_ratio=base if ratio is None else base * ratio,
            beats_champion=beats,
        )

    def accept(self, attempt: Attempt, sources: Mapping[str, str], alpha_share: float) -> Attempt:
        """A candidate after the whole gate on held-out inputs.

        Args:
            attempt: the candidate.
            sources: its sources.
            alpha_share: part of the chance of a false alarm that it may use: each candidate is one more chance to be
                called faster by luck.
        """
        self.tell(attempt.number, "accepting")
        acceptance = self.gate.accept(sources, goal=self.target.goal, alpha_share=alpha_share)
        attempt = replace(attempt, trials=(*attempt.trials, acceptance))
        self.goalposts.require(sources)
        return accepted(attempt, self.target, self.gate.before, self.goalposts.touched())


def accepted(
    attempt: Attempt, target: Target, before: Mapping[str, Status], touched: tuple[str, ...]
) -> Attempt:
    """An attempt after its acceptance, the last of its trials.

    Args:
        attempt: with its trials.
        target: what is regenerated.
        before: statuses of cases as the gate found them, by name.
        touched: files that are not its own and that it changed in its copy.
    """
    acceptance = attempt.trials[-1]
    if touched:
        return _tampered(attempt, touched)
    bad = rejections(acceptance.evaluations, target, before)
    if bad:
        return _rejected(attempt, "not-accepted", bad)
    faster = any(evaluation.verdict.status is Status.FASTER for evaluation in acceptance.evaluations)
    if target.goal == "optimise" and not faster:
        text = "right, and not faster than the kernel that it would replace in any case"
        return replace(attempt, outcome="not-accepted", reason="not-faster", message=text)
    return replace(attempt, outcome="accepted", reason="ok", message="all cases passed on inputs held out")


def _tampered(attempt: Attempt, touched: tuple[str, ...]) -> Attempt:
    text = f"it changed files of its copy that are not its own: {', '.join(touched)}"
    return replace(attempt, outcome="tampered", reason="guarded-files", message=text)


def _rejected(attempt: Attempt, outcome: Outcome, bad: tuple[Evaluation, ...]) -> Attempt:
    """A candidate that the gate turned down, in the gate's words."""
    worst = bad[0].verdict
    is_build_error = worst.status is Status.BUILD_ERROR
    lines = [
        f"{evaluation.case.name}: {evaluation.verdict.status.value} ({evaluation.verdict.reason.value}): "
        f"{evaluation.verdict.message}"
        for evaluation in bad
    ]
    return replace(
        attempt,
        outcome="build-error" if is_build_error else outcome,
        reason=worst.reason.value,
        message="\n\n".join(lines),
        log=bad[0].output if is_build_error else "",
    )


def time_ratio(evaluations: Iterable[Evaluation]) -> float | None:
    """Time over the base's: the geometric mean over the cases that were timed beside it; None without any.

    Each case's is the median over blocks of the sequential test, which interleaves both.
    """
    logs = [
        math.log(against.ratio)
        for evaluation in evaluations
        if evaluation.measurement is not None
        and (against := evaluation.measurement.against("base")) is not None
    ]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None
