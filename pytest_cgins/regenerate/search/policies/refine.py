"""`refine`: one evolving kernel, step by step; profiles are shown once its structure has settled.

Its limits are CuTeGen's: ten steps, five fixes of a step that came out wrong, three new beginnings of it.
"""

from __future__ import annotations

from itertools import takewhile

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.search.policy import Policy
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
        if not step or step[-1].is_right or _is_spent(step):
            return () if tree.rounds >= DEPTH else self._answer(tree, tree.rounds + 1, step=())
        return self._answer(tree, tree.rounds, step)

    def limit(self, tree: Tree) -> str:
        """Steps, or steps without gain."""
        if self._stagnates(tree):
            return f"{STAGNANT} steps brought nothing"
        return f"{DEPTH} steps are done"

    def _answer(self, tree: Tree, number: int, step: tuple[Attempt, ...]) -> tuple[Ask, ...]:
        start = _ask_of(step[0]).parent if step else tree.champion.number
        fixes = _fixes(step)
        mends = bool(step) and fixes < FIXES
        kind = "optimise" if not step else "fix" if mends else "regenerate"
        return (
            self._ask(
                len(tree),
                parent=step[-1].number if mends else start,
                kind=kind,
                round=number,
                shows_evidence=number > SETTLED,
                shown=tuple(candidate.number for candidate in reversed(step[-3:])),
            ),
        )

    def _stagnates(self, tree: Tree) -> bool:
        done = [number for number in range(1, tree.rounds + 1) if _is_over(tree.of_round(number))]
        last = done[-STAGNANT:]
        return len(last) == STAGNANT and not any(
            candidate.beats_champion for number in last for candidate in tree.of_round(number)
        )


def _ask_of(candidate: Attempt) -> Ask:
    assert candidate.ask is not None
    return candidate.ask


def _is_over(step: tuple[Attempt, ...]) -> bool:
    return bool(step) and (step[-1].is_right or _is_spent(step))


def _fixes(step: tuple[Attempt, ...]) -> int:
    """Mendings since the step was last begun."""
    return sum(1 for _ in takewhile(lambda candidate: _ask_of(candidate).kind == "fix", reversed(step)))


def _is_spent(step: tuple[Attempt, ...]) -> bool:
    begun_anew = sum(1 for candidate in step if _ask_of(candidate).kind == "regenerate")
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
        return (self._ask(count, parent=count, kind="fix", round=count + 1),)

    def ended(self, tree: Tree) -> str:
        """With what the last attempt ended."""
        count = len(tree)
        last = tree[count].message.partition("\n")[0]
        return f"no valid kernel in {counted(count, 'attempt')}; the last: {last}"
