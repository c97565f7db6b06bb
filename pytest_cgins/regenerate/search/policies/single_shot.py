"""`single-shot`: one pass with the hardware in view, and one more for each time that it went wrong."""

from __future__ import annotations

from pytest_cgins.regenerate.attempt import INCUMBENT, Ask
from pytest_cgins.regenerate.search.policy import Means, Policy
from pytest_cgins.regenerate.search.tree import Tree

FIXES = 4
"""Most answers after the first, if that did not run."""


class SingleShot(Policy):
    """Asks once from the incumbent, without profiles; what comes out wrong is mended."""

    name = "single-shot"

    def __init__(self, means: Means, attempts: int) -> None:
        super().__init__(means, min(attempts, 1 + FIXES))

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """The pass, or the mending of the last answer."""
        if len(tree) >= self._attempts or any(candidate.is_right for candidate in tree):
            return ()
        count = len(tree)
        kind, parent = ("fix", count) if count else ("optimise", INCUMBENT)
        return (self._ask(count, parent=parent, kind=kind, round=1, staged=False),)

    def ended(self, tree: Tree) -> str:
        """Whether it came out right."""
        came_right = any(candidate.is_right for candidate in tree)
        return "the one pass is done" if came_right else "the pass never came out right"
