"""What `mcts` has a prompt tell of the tree, to the candidate; and when it leaves a part of it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cgins.config.llm import Budget
from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.search.policies import mcts, policy
from pytest_cgins.regenerate.search.tree import Tree
from tests.regenerate.search.test_policies import MEANS, right, wrong


def ask(parent: int) -> Ask:
    return Ask(parent=parent, kind="optimise", round=1)


def chain() -> list[Attempt]:
    """Seven candidates, each made from the one before and a little faster; the eighth is the best, made from the incumbent."""
    found = [right(number, ask(number - 1), 0.99**number, beats=True) for number in range(1, 8)]
    return [*found, right(8, ask(0), 0.5, beats=True)]


def test_five_ancestors_the_best_and_three_failed_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent is shown by itself; then its five nearest ancestors, the best elsewhere, and the last failures below it."""
    tree = Tree([*chain(), *(wrong(number, ask(7)) for number in (9, 10, 11, 12))])
    monkeypatch.setattr(mcts, "chosen", lambda tree: tree[7])
    (made,) = policy("mcts", MEANS, 100).next(tree)
    assert made.parent == 7
    assert made.shown == (6, 5, 4, 3, 2, 8, 12, 11, 10)


@pytest.mark.parametrize(("parent", "told"), [(7, (6, 5, 4, 3, 2)), (5, (4, 3, 2, 1, 7)), (0, (7,))])
def test_the_best_is_told_once(parent: int, told: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the best is the parent it is not told again, and the incumbent is told by itself."""
    monkeypatch.setattr(mcts, "chosen", lambda tree: tree[parent])
    (made,) = policy("mcts", MEANS, 100).next(Tree(chain()[:7]))
    assert made.shown == told


def test_candidates_side_by_side_hang_at_different_nodes() -> None:
    """Each counts as wrong until it is known, so that the next one looks elsewhere; failures that a prompt tells of are real."""
    tree = Tree(chain()[:4])
    asks = policy("mcts", replace(MEANS, budget=Budget(side_by_side=4)), 100).next(tree)
    assert [ask.branch for ask in asks] == [0, 1, 2, 3]
    assert len({ask.parent for ask in asks}) > 1
    assert {ask.round for ask in asks} == {tree.rounds + 1}
    assert all(number <= len(tree) for ask in asks for number in ask.shown)
    assert len(policy("mcts", replace(MEANS, budget=Budget(side_by_side=4)), 6).next(tree)) == 2


def test_ten_visits_without_gain_end_it_and_nine_do_not() -> None:
    """A tenth visit in a row that brought nothing better prunes; one better candidate among them keeps it open."""
    first = right(1, ask(0), 0.9, beats=True)
    same = [right(number, ask(0), 0.95, beats=False) for number in range(2, 12)]
    chosen = policy("mcts", MEANS, 100)
    assert chosen.next(Tree([first, *same[:-1]]))
    assert chosen.next(Tree([first, *same])) == ()
    better = [*same[:-1], right(11, ask(0), 0.8, beats=True)]
    assert chosen.next(Tree([first, *better]))


def test_the_exponent_falls_from_a_half_to_three_tenths() -> None:
    """100 visits of a thousand still have nearly the square root; beyond a thousand the exponent stays."""
    assert mcts.most_children(4) == 2
    assert mcts.most_children(100) == 10
    assert mcts.most_children(1000) == round(1000**0.3 + 0.5)
    assert mcts.most_children(4000) == 13
