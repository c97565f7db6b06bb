"""`mcts`: Monte Carlo tree search over candidates: UCT on times, progressive widening, failed siblings in the prompt.

UCT is Kocsis and Szepesvári's ("Bandit based Monte-Carlo Planning", 2006), progressive widening Coulom's and Chaslot's
(2007): a node takes another child once its visits to the power of an exponent exceed the children it has. The exponent
falls from 0.5 to 0.3 over a thousand visits.
"""

from __future__ import annotations

import math

from pytest_cgins.regenerate.attempt import INCUMBENT, Ask, Attempt
from pytest_cgins.regenerate.search.policy import OTHER_WAY, Policy
from pytest_cgins.regenerate.search.tree import ROOT, Tree

EXPLORATION = 1.0
"""C of UCT."""
WIDENING = (0.5, 0.3)
"""Exponent of progressive widening at the first visit, and after `SETTLING` visits."""
SETTLING = 1000
STAGNANT = 10
"""A node below which so many visits in a row brought nothing better is left alone."""
ANCESTORS = 5
"""That a prompt tells of."""
SIBLINGS = 3
"""That failed, which a prompt tells of."""


class Mcts(Policy):
    """Some candidates at a time: each hangs where the tree's statistics say, those before it counted as wrong.

    That loss until it is known is Chaslot, Winands and van den Herik's ("Parallel Monte-Carlo Tree Search", 2008): it
    keeps them from the same node.
    """

    name = "mcts"
    looks_ahead = True

    def next(self, tree: Tree) -> tuple[Ask, ...]:
        """More children of the chosen nodes."""
        asks: list[Ask] = []
        grown = tree
        for branch in range(min(self._means.budget.side_by_side, self._attempts - len(tree))):
            if _is_pruned(grown, ROOT):
                break
            asks.append(self._child(tree, chosen(grown), branch))
            grown = grown.with_asked(asks[-1])
        return tuple(asks)

    def _child(self, tree: Tree, parent: Attempt, branch: int) -> Ask:
        failed = [child.number for child in tree.children(parent.number) if child.is_wrong][-SIBLINGS:]
        above = [other.number for other in tree.ancestors(parent.number) if other.number][:ANCESTORS]
        best = [tree.champion.number]
        if best[0] in (INCUMBENT, parent.number, *above):
            best = []
        return self._ask(
            len(tree) + branch,
            parent=parent.number,
            kind="optimise",
            round=tree.rounds + 1,
            branch=branch,
            variant=OTHER_WAY if branch else "",
            shows_evidence=parent.number != INCUMBENT,
            shown=(*above, *best, *reversed(failed)),
        )

    def limit(self, tree: Tree) -> str:  # noqa: ARG002
        """Visits without gain."""
        return f"{STAGNANT} visits brought nothing better below any kernel"


def chosen(tree: Tree) -> Attempt:
    """The node that gets the next child: down from the root by UCT, to the first that may have another one."""
    node = ROOT
    while True:
        children = [one for one in tree.children(node.number) if one.is_right and not _is_pruned(tree, one)]
        visits = len(tree.below(node.number)) + 1
        if len(tree.children(node.number)) < most_children(visits) or not children:
            return node
        node = max(children, key=lambda candidate: (uct(tree, candidate, visits), -candidate.number))


def uct(tree: Tree, node: Attempt, parent_visits: int) -> float:
    """Mean reward below a node, and what it is worth to know more of it.

    A right candidate's reward is the incumbent's time over its own, against the best one's: 1 for the best; that of a
    wrong one is 0.
    """
    seen = [node, *tree.below(node.number)]
    best = min(candidate.time_ratio or math.inf for candidate in (ROOT, *tree))
    rewards = [best / candidate.time_ratio if candidate.time_ratio else 0.0 for candidate in seen]
    return sum(rewards) / len(seen) + EXPLORATION * math.sqrt(math.log(parent_visits) / len(seen))


def most_children(visits: int) -> int:
    """How many children a node of so many visits may have."""
    first, last = WIDENING
    exponent = first + (last - first) * min(1.0, visits / SETTLING)
    return max(1, math.ceil(math.pow(visits, exponent)))


def _is_pruned(tree: Tree, node: Attempt) -> bool:
    """Whether the last visits below it brought nothing better than what was there before them."""
    below = [candidate for candidate in tree.below(node.number) if candidate.is_right or candidate.is_wrong]
    if len(below) < STAGNANT:
        return False
    before = [node, *below[:-STAGNANT]]
    best = min(candidate.time_ratio or math.inf for candidate in before)
    return all((candidate.time_ratio or math.inf) >= best for candidate in below[-STAGNANT:])
