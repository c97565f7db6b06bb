"""`evolve`: generations from an archive, by several models and temperatures; verifiers order what is tried."""

from __future__ import annotations

import random

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.regenerate.search.tree import ROOT, Tree

PROPOSED = 6
"""Candidates a generation that are asked for."""
TRIED = 4
"""Of these, how many are tried."""
TEMPERATURES = (0.5, 0.75, 1.0)
ARCHIVE = 8
"""The best right candidates, from which parents are drawn."""
PROFILED = 3
"""From this generation on, profiles are in the prompt."""


class Evolve(Policy):
    """A generation's parents are drawn from the archive, the better the likelier."""

    name = "evolve"
    looks_ahead = True
    ranks = True

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """The next generation."""
        generation = tree.rounds + 1
        if generation > self._means.budget.generations or len(tree) >= self._attempts:
            return ()
        archive = archive_of(tree)
        # The same for the same tree.
        draws = random.Random(f"{self._means.seed}/{len(tree)}")  # noqa: S311 - a search, no secret
        weights = [1 / (rank + 1) for rank in range(len(archive))]
        failed = [candidate.number for candidate in tree.of_round(tree.rounds) if candidate.is_wrong][-2:]
        asks = []
        for branch in range(min(PROPOSED, self._attempts - len(tree))):
            parent = draws.choices(archive, weights)[0]
            others = [other.number for other in archive if other.number not in (0, parent.number)][:2]
            asks.append(
                self._ask(
                    branch,
                    parent=parent.number,
                    kind="optimise",
                    round=generation,
                    branch=branch,
                    temperature=TEMPERATURES[branch % len(TEMPERATURES)],
                    shows_evidence=generation >= PROFILED,
                    shown=(*others, *failed),
                )
            )
        return tuple(asks)

    def tries(self, asked: int) -> int:
        """Those that the verifiers think best of."""
        return min(asked, TRIED)

    def ended(self, tree: Tree) -> str:
        """Which limit was met."""
        if tree.rounds >= self._means.budget.generations:
            return f"{counted(self._means.budget.generations, 'generation is', 'generations are')} done"
        return self.used_up()


def archive_of(tree: Tree) -> tuple[Attempt, ...]:
    """The best right candidates, the incumbent among them, fastest first."""
    right = [ROOT, *(candidate for candidate in tree if candidate.is_right)]
    return tuple(
        sorted(right, key=lambda candidate: (candidate.time_ratio or 0.0, candidate.number))[:ARCHIVE]
    )
