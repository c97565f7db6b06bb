"""`branch`: four candidates a round with the same methods and different parameters; the fastest is champion.

Then each method of a new champion is left out in turn, which tells what it contributes. The others that were right stay
in the frontier: the next round starts from the best of them, if the champion stagnates.
"""

from __future__ import annotations

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import INCUMBENT, Ask, Attempt
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.regenerate.search.tree import Tree

RETRIES = 3
"""Most repetitions of a round in which every candidate was wrong."""
VARIANTS = (
    "the tile and block sizes that you think best",
    "larger tiles, more work a thread, fewer blocks",
    "smaller tiles or more warps, so that more blocks run at once",
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
        searched = _rounds(tree)
        if self._retries(tree) > RETRIES or (searched >= self._means.rounds and self._retries(tree) == 0):
            return ()
        return self._branches(tree)

    def ended(self, tree: Tree) -> str:
        """Which limit was met."""
        if len(tree) >= self._attempts:
            return self.used_up()
        if self._retries(tree) > RETRIES:
            return f"every branch was wrong {counted(RETRIES + 1, 'time')} in a row"
        return f"{counted(self._means.rounds, 'round is', 'rounds are')} done"

    def _branches(self, tree: Tree) -> tuple[Ask, ...]:
        start = self._start(tree)
        last = [candidate for candidate in tree.of_round(tree.rounds) if not candidate.is_right]
        count = min(self._means.branches, self._attempts - len(tree))
        return tuple(
            Ask(
                parent=start.number,
                kind="optimise",
                round=tree.rounds + 1,
                branch=branch,
                model=self._means.model(branch),
                temperature=self._means.temperature,
                shows_evidence=True,
                variant=VARIANTS[branch % len(VARIANTS)],
                shown=tuple(candidate.number for candidate in last[-3:]),
            )
            for branch in range(count)
        )

    def _start(self, tree: Tree) -> Attempt:
        """The champion; where a whole round from it brought nothing, the best of the frontier that was not yet tried."""
        champion = tree.champion
        tried = [
            candidate
            for candidate in tree.children(champion.number)
            if tree.ask(candidate.number).kind != "ablate"
        ]
        if not any(candidate.is_right for candidate in tried):
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
        return tuple(
            Ask(
                parent=champion.number,
                kind="ablate",
                round=tree.ask(champion.number).round,
                branch=branch,
                model=self._means.model(branch),
                temperature=self._means.temperature,
                method=method,
            )
            for branch, method in enumerate(left[: self._attempts - len(tree)])
        )

    def _retries(self, tree: Tree) -> int:
        """Rounds at the end in which no candidate was right."""
        count = 0
        for number in range(tree.rounds, 0, -1):
            if any(candidate.is_right for candidate in tree.of_round(number)):
                break
            count += 1
        return count


def _rounds(tree: Tree) -> int:
    """Rounds with a candidate that was right."""
    return sum(
        1
        for number in range(1, tree.rounds + 1)
        if any(candidate.is_right for candidate in tree.of_round(number))
    )
