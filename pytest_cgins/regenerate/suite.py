"""Suites: how many of many problems a model and a policy solve, and how much faster than torch what they wrote is.

What counts as right and as faster is what the gate accepted and measured on fresh inputs. fast_p is the share of all
problems with a right kernel that is more than p times as fast (Ouyang et al., "KernelBench", 2025); who has none counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import Attempt, Target
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.new_kernel import word_of
from pytest_cgins.regenerate.prompts.workload import family_of
from pytest_cgins.regenerate.targets import is_of

SUITE_VERSION = 1
NAME = "suite.json"
FAST = (0.0, 1.0, 1.5, 2.0)
"""p of fast_p; 0: right at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Document):
    """One way of asking for all problems."""

    language: str
    """Of the kernels."""
    policy: str
    """Of the search for a faster one; "" where the first right kernel ends it."""
    model: str
    """Who is asked; "" for the one of cgins.yaml, or a person or an agent."""
    run: str = ""
    """The run; "" before it began."""

    @property
    def name(self) -> str:
        """In tables: `cuda refine gpt`."""
        return " ".join(filter(None, (self.language, self.policy or "first right", self.model)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite(Document):
    """What is asked for, and where: the suite's own file, by which it goes on."""

    version: int
    """1."""
    source: str
    """Kind of the problems, and the folder that they came from."""
    seed: int
    """By which they were drawn; of inputs, too."""
    drawn: tuple[str, ...]
    """Names of the problems' files, in the order of their names."""
    variants: tuple[Variant, ...]
    """Each has a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution(Document):
    """What one run made of one problem."""

    op: str
    """The problem."""
    family: str
    """Kind of its op."""
    state: str
    """Of its target: `accepted`, `failed`, `waiting`, `stopped`, or "" before its turn."""
    answers: int
    """Of the generator."""
    right_after: int | None
    """Answers until one was accepted; None if none was."""
    speeds: dict[str, float]
    """torch's time over the accepted kernel's, geometric mean over the cases, by what it is held against."""
    best: tuple[float, ...]
    """Speed of each answer's kernel against eager torch, 0 where it is not right or not timed: measured, not proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Document):
    """One row of the table: a variant, over all problems or those of one kind."""

    name: str
    """Of the variant."""
    family: str
    """Kind of op; "" for all."""
    problems: int
    """All, with those that nothing was accepted for."""
    answers_per_problem: float
    """Of the generator."""
    fast: dict[str, tuple[float, ...]]
    """fast_p for each of `FAST`, by what it is held against."""
    mean_speed: dict[str, float]
    """Geometric mean over problems with an accepted kernel, by what it is held against."""


def solutions(journal: Journal) -> tuple[Solution, ...]:
    """What a run made of each of its problems, from nothing but its journal."""
    return tuple(_solution(journal, target) for target in journal.record.targets if not target.improves)


def scores(name: str, found: Sequence[Solution], drawn: int) -> tuple[Score, ...]:
    """A row for all problems, and one for each kind of op if there are several.

    Args:
        name: of the variant.
        found: one for each op that was recorded.
        drawn: problems that were drawn: those that could not be recorded were not solved.
    """
    families = sorted({one.family for one in found})
    parts = [("", found), *((kind, [one for one in found if one.family == kind]) for kind in families)]
    kept = parts if len(families) > 1 else parts[:1]
    return tuple(_score(name, kind, part, max(len(part), 0 if kind else drawn)) for kind, part in kept)


def curve(found: Sequence[Solution], above: float, drawn: int) -> list[float]:
    """Share of the problems that are solved after 1, 2, … answers each.

    Args:
        found: one for each op that was recorded.
        above: how many times as fast as eager torch the best kernel has to be; 0: it has to be right.
        drawn: problems that were drawn.
    """

    def is_solved(one: Solution, count: int) -> bool:
        if not above:
            return one.right_after is not None and one.right_after <= count
        return max(one.best[:count], default=0.0) > above

    longest = max((one.answers for one in found), default=0)
    return [
        sum(is_solved(one, count) for one in found) / max(len(found), drawn)
        for count in range(1, longest + 1)
    ]


def _solution(journal: Journal, target: Target) -> Solution:
    parts = [target, *([faster] if (faster := journal.next(target)) else [])]
    attempts = [journal.attempts(part) for part in parts]
    result, ended = journal.result(parts[-1]), journal.ended(target)
    accepted = [next((one for one in part if one.outcome == "accepted"), None) for part in attempts]
    last = next((one for one in reversed(accepted) if one is not None), None)
    waits = result is None and accepted[0] is not None
    return Solution(
        op=target.op,
        family=family_of(word_of(target.op)),
        state="waiting" if waits else ended.state if ended is not None else "",
        answers=sum(map(len, attempts)),
        right_after=None if accepted[0] is None else accepted[0].number,
        speeds={} if last is None else _speeds(_timed(last, target)),
        best=tuple(speed_vs_torch(one, target) for part in attempts for one in part),
    )


def speed_vs_torch(attempt: Attempt, target: Target) -> float:
    """Torch's time over an answer's kernel's, geometric mean over the cases; 0 where it is not right or was not timed."""
    return _speeds(_timed(attempt, target)).get("torch", 0.0)


def _timed(attempt: Attempt, target: Target) -> list[Evaluation]:
    """Of its last trial in which times were taken, the target's cases that passed; [] if it is not right."""
    if not (attempt.is_right or attempt.outcome == "accepted") or not attempt.trials:
        return []
    return [
        one
        for one in attempt.trials[-1].evaluations
        if is_of(one.case, target) and one.measurement is not None
    ]


def _speeds(evaluations: Iterable[Evaluation]) -> dict[str, float]:
    of_arm: dict[str, list[float]] = {}
    for one in evaluations:
        assert one.measurement is not None
        of_arm.setdefault("torch", []).append(one.measurement.speedup_vs_torch)
        if one.measurement.speedup_vs_compile is not None:
            of_arm.setdefault("compile", []).append(one.measurement.speedup_vs_compile)
    return {arm: geometric_mean(ratios) for arm, ratios in of_arm.items()}


def _score(name: str, family: str, found: Sequence[Solution], problems: int) -> Score:
    right = [one for one in found if one.right_after is not None]
    arms = [arm for arm in ("torch", "compile") if any(arm in one.speeds for one in right)]
    return Score(
        name=name,
        family=family,
        problems=problems,
        answers_per_problem=sum(one.answers for one in found) / problems,
        fast={
            arm: tuple(
                (len(right) if p == 0 else sum(one.speeds.get(arm, 0.0) > p for one in right)) / problems
                for p in FAST
            )
            for arm in arms or ["torch"]
        },
        mean_speed={
            arm: geometric_mean([one.speeds[arm] for one in right if arm in one.speeds]) for arm in arms
        },
    )
