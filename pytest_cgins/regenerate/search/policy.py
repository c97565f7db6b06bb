"""What a policy is: a function from the tree of candidates to what is asked for next.

It keeps nothing. A search that was killed and resumed builds the same tree from its journal, so it asks for the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pytest_cgins.config.llm import UNPAID, Budget
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import INCUMBENT, Ask, Attempt
from pytest_cgins.regenerate.search.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What all policies have at their disposal."""

    models: tuple[str, ...]
    """That generate, in turn; ("",) for a person or an agent."""
    temperature: float | None = None
    """Of the generator where a policy sets none."""
    seed: int = 0
    """Of whatever a policy draws."""
    budget: Budget = UNPAID
    """How many answers at once, rounds, branches and generations there may be."""


_WAY = (
    "provider-error", "unusable", "tampered", "refused", "not-tried", "build-error", "failed", "not-accepted", "right",
    "accepted",
)  # fmt: skip
"""Outcomes, the farther from a right kernel the earlier."""


OTHER_WAY = "not the structure that most people would choose for this op, but another one"
"""What an answer beside the first has: the same prompt twice may bring the same answer twice."""


class Policy(ABC):
    """Decides what is asked for.

    Args:
        means: what it has.
        attempts: most answers that it may ask for.
    """

    name: str
    """As `--cgins-policy` takes it."""
    searches = True
    """Whether it is after the fastest of many candidates; else the first right one is accepted."""
    ranks = False
    """Whether verifiers order the candidates before they are tried."""

    looks_ahead = False
    """Whether it can say what is asked for next before it is known what became of the last; that counts as wrong then."""

    def __init__(self, means: Means, attempts: int) -> None:
        self._means = means
        self._attempts = attempts

    @abstractmethod
    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """What to ask for now, all at once; () if there is nothing more to ask for."""

    def ended(self, tree: Tree) -> str:
        """Why there is nothing more to ask for, in a line."""
        return self.used_up() if len(tree) >= self._attempts else self.limit(tree)

    def limit(self, tree: Tree) -> str:
        """Which of the policy's own limits was met."""
        raise NotImplementedError

    def tries(self, asked: int) -> int:
        """How many of so many candidates of a round are tried, the best ranked ones."""
        return asked

    def _ask(self, turn: int, **fields: Any) -> Ask:
        """What is asked of the model whose turn it is; `turn` counts from 0."""
        model = self._means.models[turn % len(self._means.models)]
        return Ask(**{"model": model, "temperature": self._means.temperature, **fields})

    def _abreast(self, turn: int, count: int, **fields: Any) -> tuple[Ask, ...]:
        """So many answers to one prompt at once; all but the first are to take another way."""
        return tuple(
            self._ask(turn + branch, branch=branch, variant=OTHER_WAY if branch else "", **fields)
            for branch in range(count)
        )

    def used_up(self) -> str:
        """The reason that all policies share."""
        return f"{counted(self._attempts, 'answer is', 'answers are')} used up"


def most_promising(candidates: Sequence[Attempt]) -> Attempt:
    """Which of several wrong ones is nearest to right: by how far each came, then by the cases that it passed."""
    return max(candidates, key=lambda one: (_WAY.index(one.outcome), _passed(one), -one.number))


def _passed(candidate: Attempt) -> int:
    found = candidate.trials[-1].evaluations if candidate.trials else ()
    return sum(one.verdict.status.outcome == "pass" for one in found)


def decided(policy: str, asks: Sequence[Ask]) -> str:
    """Of one round, in the order in which it was asked for."""
    parts = [_part(policy, kind, list(group)) for kind, group in groupby(asks, key=lambda ask: ask.kind)]
    return "; then ".join(parts)


def name_of(number: int) -> str:
    """`candidate 3`, or the incumbent."""
    return "the incumbent" if number == INCUMBENT else f"candidate {number}"


def _part(policy: str, kind: str, asks: list[Ask]) -> str:
    parents = ", ".join(name_of(number) for number in dict.fromkeys(ask.parent for ask in asks))
    if kind == "ablate":
        return f"{parents} without {', '.join(ask.method for ask in asks)}{', in turn' if asks[1:] else ''}"
    if kind == "fix":
        return f"fix of {', '.join(str(ask.parent) for ask in asks)}{_means(asks)}"
    if kind == "regenerate":
        return f"anew from {parents}{_means(asks)}"
    return _optimise(policy, asks, parents) + _means(asks)


def _optimise(policy: str, asks: list[Ask], parents: str) -> str:
    if policy == "evolve":
        drawn = Counter(ask.parent for ask in asks)
        told = ", ".join(
            f"{name_of(number)}{f' ({times} times)' if times > 1 else ''}" for number, times in drawn.items()
        )
        return f"generation of {len(asks)}, parents from the archive: {told}"
    words = {
        "single-shot": f"one pass over {parents}",
        "refine": f"next step from {parents}",
        "branch": f"{counted(len(asks), 'branch', 'branches')} from {parents}",
        "mcts": f"child of {parents} by UCT",
    }
    return words.get(policy, f"{counted(len(asks), 'answer')} from {parents}")


def _means(asks: list[Ask]) -> str:
    """By whom, how warm, and what the prompt tells besides."""
    models = list(dict.fromkeys(ask.model for ask in asks))
    warmth = sorted({ask.temperature for ask in asks if ask.temperature is not None})
    shown = list(dict.fromkeys(number for ask in asks for number in ask.shown))
    said = [f"by {', '.join(models)}"] if len(models) > 1 else []
    said += [f"at {', '.join(f'{one:g}' for one in warmth)}"] if len(warmth) > 1 else []
    said += ["with profiles"] if any(ask.shows_evidence for ask in asks) else []
    said += [f"telling of {', '.join(map(str, shown))}"] if shown else []
    return "".join(f", {one}" for one in said)
