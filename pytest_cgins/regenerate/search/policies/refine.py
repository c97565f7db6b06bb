"""`refine`: one evolving kernel, step by step; profiles are shown once its structure has settled.

A step, and a repair, begin with some answers side by side; where none is right, the most promising one is mended.
The limits are CuTeGen's: ten steps, five fixes of a step that came out wrong, three new beginnings of it.
"""

from __future__ import annotations

from itertools import takewhile

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import INCUMBENT, Ask, Attempt
from pytest_cgins.regenerate.search.policy import Policy, most_promising
from pytest_cgins.regenerate.search.tree import Tree

DEPTH = 10
"""Steps."""
FIXES = 5
"""Most mendings of one answer of a step."""
REGENERATIONS = 3
"""Most times that a step is begun anew from the same kernel."""
SETTLED = 1
"""After so many steps the structure is taken to have settled."""
STAGNANT = 3
"""After so many steps without gain the search ends."""


class Refine(Policy):
    """A step starts from the champion, and ends with a candidate that is right, or with none."""

    name = "refine"

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """The next answer of this step, or the first of the next one."""
        if len(tree) >= self._attempts or self._stagnates(tree):
            return ()
        step = tree.of_round(tree.rounds)
        if not step or _is_over(step):
            return () if tree.rounds >= DEPTH else self._answers(tree, tree.rounds + 1, step=())
        return self._answers(tree, tree.rounds, step)

    def limit(self, tree: Tree) -> str:
        """Steps, or steps without gain."""
        if self._stagnates(tree):
            return f"{STAGNANT} steps brought nothing"
        return f"{DEPTH} steps are done"

    def _answers(self, tree: Tree, number: int, step: tuple[Attempt, ...]) -> tuple[Ask, ...]:
        start = step[0].ask.parent if step else tree.champion.number
        fixes = _fixes(step)
        mends = bool(step) and fixes < FIXES
        kind = "optimise" if not step else "fix" if mends else "regenerate"
        if mends:
            start = step[-1].number if fixes else most_promising(_begun(step)).number
        count = 1 if mends else min(self._means.budget.side_by_side, self._attempts - len(tree))
        shown = tuple(candidate.number for candidate in reversed(step[-3:]))
        return self._abreast(
            len(tree),
            count,
            parent=start,
            kind=kind,
            round=number,
            shows_evidence=number > SETTLED,
            shown=shown,
        )

    def _stagnates(self, tree: Tree) -> bool:
        done = [number for number in range(1, tree.rounds + 1) if _is_over(tree.of_round(number))]
        last = done[-STAGNANT:]
        return len(last) == STAGNANT and not any(
            candidate.beats_champion for number in last for candidate in tree.of_round(number)
        )


def _is_over(step: tuple[Attempt, ...]) -> bool:
    return any(candidate.is_right for candidate in step) or _is_spent(step)


def _fixes(step: tuple[Attempt, ...]) -> int:
    """Mendings since the step was last begun."""
    return sum(1 for _ in takewhile(lambda candidate: candidate.ask.kind == "fix", reversed(step)))


def _begun(step: tuple[Attempt, ...]) -> list[Attempt]:
    """Answers with which it was last begun, side by side."""
    kind = step[-1].ask.kind
    last = list(takewhile(lambda candidate: candidate.ask.kind == kind, reversed(step)))
    return last[: 1 + max(candidate.ask.branch for candidate in last)]


def _is_spent(step: tuple[Attempt, ...]) -> bool:
    begun_anew = sum(1 for one in step if one.ask.kind == "regenerate" and not one.ask.branch)
    return begun_anew >= REGENERATIONS and _fixes(step) >= FIXES


class Repair(Policy):
    """Of a kernel that is wrong, or not there yet; nobody chooses it by name."""

    name = "repair"
    searches = False

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """The next attempt."""
        count = len(tree)
        if count >= self._attempts or any(attempt.outcome == "accepted" for attempt in tree):
            return ()
        if not count:
            beside = min(self._means.budget.side_by_side, self._attempts)
            return self._abreast(0, beside, parent=INCUMBENT, kind="fix", round=1)
        begun = [attempt for attempt in tree if tree.ask(attempt.number).round == 1]
        parent = most_promising(begun).number if tree.rounds == 1 else count
        return (self._ask(count, parent=parent, kind="fix", round=tree.rounds + 1),)

    def ended(self, tree: Tree) -> str:
        """With what the last attempt ended."""
        count = len(tree)
        last = tree[count].message.partition("\n")[0]
        return f"no valid kernel in {counted(count, 'attempt')}; the last: {last}"
