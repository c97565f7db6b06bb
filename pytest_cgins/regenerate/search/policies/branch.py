"""`branch`: four candidates a round with the same methods and different parameters; the fastest is champion.

Then each method of a new champion is left out in turn, which tells what it contributes. The others that were right stay
in the frontier: the next round starts from the best of them, if the champion stagnates.
"""

from __future__ import annotations

from itertools import takewhile

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import INCUMBENT, Ask, Attempt
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.regenerate.search.tree import Tree

RETRIES = 3
"""Most repetitions of a round in which every candidate was wrong."""
VARIANTS = (
    "the same methods as the others, and the tile and block sizes that you think best",
    "the same methods as the others, larger tiles, more work a thread, fewer blocks",
    "the same methods as the others, smaller tiles or more warps, so that more blocks run at once",
    "another number of stages, or another way to share the work among threads, with the same methods",
)
"""What the branches of a round differ in."""


class Branch(Policy):
    """Rounds of K branches, each round followed by ablations of its champion."""

    name = "branch"

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """Ablations of a new champion, a repetition, or the next round."""
        if len(tree) >= self._attempts:
            return ()
        missing = self._ablations(tree)
        if missing:
            return missing
        searched = sum(_has_right(tree, number) for number in range(1, tree.rounds + 1))
        if self._retries(tree) > RETRIES or (
            searched >= self._means.budget.rounds and self._retries(tree) == 0
        ):
            return ()
        return self._branches(tree)

    def limit(self, tree: Tree) -> str:
        """Rounds, or rounds in which nothing was right."""
        if self._retries(tree) > RETRIES:
            return f"every branch was wrong {counted(RETRIES + 1, 'time')} in a row"
        return f"{counted(self._means.budget.rounds, 'round is', 'rounds are')} done"

    def _branches(self, tree: Tree) -> tuple[Ask, ...]:
        start = self._start(tree)
        last = [candidate for candidate in tree.of_round(tree.rounds) if not candidate.is_right]
        count = min(self._means.budget.branches, self._attempts - len(tree))
        return tuple(
            self._ask(
                branch,
                parent=start.number,
                kind="optimise",
                round=tree.rounds + 1,
                branch=branch,
                shows_evidence=True,
                variant=VARIANTS[branch % len(VARIANTS)],
                shown=tuple(candidate.number for candidate in last[-3:]),
            )
            for branch in range(count)
        )

    def _start(self, tree: Tree) -> Attempt:
        """The champion; where a whole round from it brought nothing, the best of the frontier that was not yet tried."""
        champion = tree.champion
        children = tree.children(champion.number)
        if not any(child.is_right and tree.ask(child.number).kind != "ablate" for child in children):
            return champion
        frontier = [
            candidate
            for candidate in tree
            if candidate.is_right
            and tree.ask(candidate.number).kind == "optimise"
            and not tree.children(candidate.number)
        ]
        return min(frontier, key=lambda candidate: candidate.time_ratio or 0.0, default=champion)

    def _ablations(self, tree: Tree) -> tuple[Ask, ...]:
        champion = tree.champion
        if champion.number == INCUMBENT:
            return ()
        done = {tree.ask(candidate.number).method for candidate in tree.children(champion.number)}
        left = [method for method in tree.added(champion.number) if method not in done]
        number = tree.ask(champion.number).round
        return tuple(
            self._ask(
                branch, parent=champion.number, kind="ablate", round=number, branch=branch, method=method
            )
            for branch, method in enumerate(left[: self._attempts - len(tree)])
        )

    def _retries(self, tree: Tree) -> int:
        """Rounds at the end in which no candidate was right."""
        return sum(
            1 for _ in takewhile(lambda number: not _has_right(tree, number), range(tree.rounds, 0, -1))
        )


def _has_right(tree: Tree, number: int) -> bool:
    return any(candidate.is_right for candidate in tree.of_round(number))
