"""What a policy is: a function from the tree of candidates to what is asked for next.

It keeps nothing. A search that was killed and resumed builds the same tree from its journal, so it asks for the same.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import Ask
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
    rounds: int = 3
    """Of `branch`."""
    branches: int = 4
    """Candidates of a round of `branch`."""

    def model(self, turn: int) -> str:
        """The model whose turn it is; `turn` counts from 0."""
        return self.models[turn % len(self.models)]

    def draws(self, tree: Tree) -> random.Random:
        """A generator that gives the same for the same tree."""
        return random.Random(f"{self.seed}/{len(tree)}")  # noqa: S311 - a search, no secret


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

    def __init__(self, means: Means, attempts: int) -> None:
        self._means = means
        self._attempts = attempts

    @abstractmethod
    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """What to ask for now, all at once; () if there is nothing more to ask for."""

    @abstractmethod
    def ended(self, tree: Tree) -> str:
        """Why there is nothing more to ask for, in a line."""

    def tries(self, asked: int) -> int:
        """How many of so many candidates of a round are tried, the best ranked ones."""
        return asked

    def used_up(self) -> str:
        """The reason that all policies share."""
        return f"{counted(self._attempts, 'answer is', 'answers are')} used up"
