"""A repair: one candidate after another, each from the last that had sources, until one is right."""

from __future__ import annotations

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import Ask
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.regenerate.search.tree import Tree


class Repair(Policy):
    """Of a kernel that is wrong, or not there yet; nobody chooses it by name."""

    name = "repair"
    searches = False

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """The next attempt."""
        count = len(tree)
        if count >= self._attempts or any(attempt.outcome == "accepted" for attempt in tree):
            return ()
        return (
            Ask(
                parent=count,
                kind="fix",
                round=count + 1,
                model=self._means.model(count),
                temperature=self._means.temperature,
            ),
        )

    def ended(self, tree: Tree) -> str:
        """With what the last attempt ended."""
        count = len(tree)
        last = tree[count].message.partition("\n")[0]
        return f"no valid kernel in {counted(count, 'attempt')}; the last: {last}"
