"""What each policy asks for, given what became of what it had asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.config.llm import Budget
from pytest_cgins.core.options import POLICIES
from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.search.policies import branch, evolve, mcts, policy, refine, single_shot
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.search.tree import Tree

MEANS = Means(models=("a", "b"), temperature=0.2, seed=7)
Becomes = Callable[[int, Ask, Tree], Attempt]
"""What becomes of a candidate by its number, what was asked, and the tree before its batch."""


def wrong(number: int, ask: Ask) -> Attempt:
    return Attempt(number=number, goal="optimise", outcome="failed", reason="x", message="", ask=ask)


def right(number: int, ask: Ask, ratio: float, *, beats: bool, methods: tuple[str, ...] = ()) -> Attempt:
    made = replace(wrong(number, ask), outcome="right", methods=methods)
    return replace(made, time_ratio=ratio, beats_champion=beats)


def grown(
    name: str, becomes: Becomes, *, attempts: int = 200, means: Means = MEANS
) -> tuple[Tree, list[int]]:
    """The tree that a policy ends with, and the sizes of its batches."""
    chosen = policy(name, means, attempts)
    nodes: list[Attempt] = []
    sizes = []
    while asks := chosen.next(Tree(nodes)):
        before = Tree(nodes)
        assert asks == chosen.next(before), "the same tree, another answer"
        nodes += [becomes(len(nodes) + index, ask, before) for index, ask in enumerate(asks, 1)]
        sizes.append(len(asks))
    assert chosen.ended(Tree(nodes))
    return Tree(nodes), sizes


def all_wrong(number: int, ask: Ask, tree: Tree) -> Attempt:
    return wrong(number, ask)


def steadily_faster(number: int, ask: Ask, tree: Tree) -> Attempt:
    return right(
        number, ask, 0.97**number, beats=ask.kind != "ablate", methods=("tiling", "vectorized-loads")
    )


def test_single_shot_is_one_pass_and_its_fixes() -> None:
    """One candidate, if it is right; else at most four mendings of the last answer."""
    tree, _ = grown("single-shot", steadily_faster)
    assert [one.number for one in tree] == [1]
    tree, _ = grown("single-shot", all_wrong)
    assert len(tree) == 1 + single_shot.FIXES
    assert [(tree.ask(one.number).parent, tree.ask(one.number).kind) for one in tree] == [
        (0, "optimise"), (1, "fix"), (2, "fix"), (3, "fix"), (4, "fix"),
    ]  # fmt: skip


def test_refine_mends_then_begins_anew_then_goes_on() -> None:
    """Five fixes of an answer, three new beginnings of a step, each of these fixed as well."""
    tree, _ = grown("refine", all_wrong)
    first = [tree.ask(one.number) for one in tree.of_round(1)]
    assert [ask.kind for ask in first] == (["optimise", *["fix"] * 5] + 3 * ["regenerate", *["fix"] * 5])
    assert [ask.parent for ask in first if ask.kind != "fix"] == [0, 0, 0, 0]
    assert tree.rounds == refine.STAGNANT, "three steps without gain are enough"


def test_refine_takes_ten_steps_of_one_evolving_kernel() -> None:
    """Each from the champion before it; no profiles before the structure has settled."""
    tree, _ = grown("refine", steadily_faster)
    assert len(tree) == refine.DEPTH
    assert [tree.ask(one.number).parent for one in tree] == list(range(10))
    assert [tree.ask(one.number).shows_evidence for one in tree] == [False, *[True] * 9]


def test_refine_begins_a_step_with_answers_side_by_side() -> None:
    """Of three the most promising is mended; a step whose first answers are right is done with them."""

    def becomes(number: int, ask: Ask, tree: Tree) -> Attempt:
        made = wrong(number, ask)
        return made if number == 2 else replace(made, outcome="build-error")

    three = replace(MEANS, budget=Budget(side_by_side=3))
    tree, sizes = grown("refine", becomes, means=three, attempts=20)
    asks = [tree.ask(one.number) for one in tree]
    assert sizes[:8] == [3, 1, 1, 1, 1, 1, 3, 1]
    assert [ask.parent for ask in asks[:5]] == [0, 0, 0, 2, 4]
    assert [bool(ask.variant) for ask in asks[:4]] == [False, True, True, False]
    assert [ask.kind for ask in asks[8:11]] == ["regenerate"] * 3
    whole, sizes = grown("refine", all_wrong, means=three)
    assert [ask.kind for ask in map(whole.ask, range(1, 33))].count("regenerate") == 3 * refine.REGENERATIONS
    _, sizes = grown("refine", steadily_faster, means=three)
    assert sizes == [3] * refine.DEPTH


def test_branch_has_rounds_of_variants_and_ablations_of_champions() -> None:
    """Four at once from one parent with different parameters; then each method of the champion is left out."""
    tree, sizes = grown("branch", steadily_faster)
    assert sizes == [4, 2, 4, 2, 4, 2]
    first = [tree.ask(number) for number in range(1, 5)]
    assert {ask.parent for ask in first} == {0}
    assert len({ask.variant for ask in first}) == 4
    ablations = [tree.ask(number) for number in (5, 6)]
    assert [(ask.kind, ask.parent, ask.method) for ask in ablations] == [
        ("ablate", 4, "tiling"), ("ablate", 4, "vectorized-loads"),
    ]  # fmt: skip


def test_branch_goes_on_from_a_champion_that_was_ablated() -> None:
    """Ablations are no round that began from it: the next one does."""

    def becomes(number: int, ask: Ask, tree: Tree) -> Attempt:
        return replace(
            steadily_faster(number, ask, tree),
            methods=("tiling",) if number <= 4 else ("tiling", f"m{number}"),
        )

    tree, _ = grown("branch", becomes)
    ablated = {tree.ask(one.number).parent for one in tree if tree.ask(one.number).kind == "ablate"}
    starts = [tree.ask(tree.of_round(number)[0].number).parent for number in range(1, tree.rounds + 1)]
    assert starts[0] == 0
    assert set(starts[1:]) <= ablated


def test_branch_repeats_a_round_in_which_all_were_wrong_three_times() -> None:
    """Then it ends."""
    tree, sizes = grown("branch", all_wrong)
    assert sizes == [4] * (1 + branch.RETRIES)
    assert tree.champion.number == 0


def test_branch_goes_on_from_the_frontier_where_the_champion_stagnates() -> None:
    """A right candidate that was not the fastest is the parent of the next round."""

    def becomes(number: int, ask: Ask, tree: Tree) -> Attempt:
        return right(number, ask, 1.0 + number / 100, beats=False)

    tree, _ = grown("branch", becomes)
    assert [tree.ask(number).parent for number in (1, 5, 9)] == [0, 1, 2]


def test_evolve_has_generations_of_several_models_and_temperatures() -> None:
    """Ten generations of six, parents from the archive, which holds the best only; verifiers leave four to be tried."""
    tree, sizes = grown("evolve", steadily_faster)
    assert sizes == [evolve.PROPOSED] * MEANS.budget.generations
    one = [tree.ask(number) for number in range(1, 7)]
    assert {ask.model for ask in one} == {"a", "b"}
    assert [ask.temperature for ask in one] == [0.5, 0.75, 1.0] * 2
    for number in range(2, 11):
        before = Tree([each for each in tree if tree.ask(each.number).round < number])
        archive = {each.number for each in evolve.archive_of(before)}
        assert {tree.ask(each.number).parent for each in tree.of_round(number)} <= archive
    assert [tree.ask(each.number).shows_evidence for each in tree][::6] == [False, False, *[True] * 8]
    chosen = policy("evolve", MEANS, 9)
    assert (chosen.ranks, chosen.tries(6), chosen.tries(2)) == (True, 4, 2)


def test_mcts_widens_slowly_and_leaves_what_stagnates() -> None:
    """A node of n visits has about the root of n children; below ten visits without gain nothing is tried."""
    tree, _ = grown("mcts", steadily_faster, attempts=40)
    assert len(tree) == 40
    for number in range(len(tree) + 1):
        visits = len(tree.below(number)) + 1
        assert len(tree.children(number)) <= mcts.most_children(visits)
    tree, _ = grown("mcts", lambda number, ask, tree: right(number, ask, 1.1, beats=False))
    assert len(tree) == mcts.STAGNANT


def test_mcts_goes_where_times_are_better() -> None:
    """Of two kernels the faster one gets more children, the other some."""

    def becomes(number: int, ask: Ask, tree: Tree) -> Attempt:
        line = number if ask.parent == 0 else [*tree.ancestors(ask.parent), tree[ask.parent]][0].number
        own = {1: 0.5, 2: 0.95}.get(number, (tree[ask.parent].time_ratio or 1.0) * (1 - 0.001 * line))
        return right(number, ask, own, beats=False)

    tree, _ = grown("mcts", becomes, attempts=30)
    assert len(tree.below(1)) > len(tree.below(2)) > 0


@pytest.mark.parametrize("name", POLICIES)
@given(ends=st.lists(st.floats(0.3, 1.5) | st.none(), min_size=30, max_size=30))
@settings(max_examples=25, deadline=None)
def test_every_policy_ends_and_keeps_to_its_attempts(name: str, ends: list[float | None]) -> None:
    """Whatever becomes of the candidates; each parent is an earlier one that had sources."""

    def becomes(number: int, ask: Ask, tree: Tree) -> Attempt:
        ratio = ends[number % len(ends)]
        assert ask.parent <= len(tree)
        if ratio is None:
            return wrong(number, ask)
        best = min([1.0, *(one.time_ratio or 9.0 for one in tree)])
        return right(number, ask, ratio, beats=ratio < best and ask.kind != "ablate", methods=("a",))

    tree, _ = grown(name, becomes, attempts=30)
    assert len(tree) <= 30


def test_policies_decide_differently() -> None:
    """On the same outcomes no two ask for the same parents."""
    trees = {name: grown(name, steadily_faster, attempts=12)[0] for name in POLICIES}
    parents = {name: tuple(tree.ask(one.number).parent for one in tree) for name, tree in trees.items()}
    assert len(set(parents.values())) == len(POLICIES)


def test_a_tree_refuses_gaps() -> None:
    """Candidates are numbered from 1 on."""
    ask = Ask(parent=0, kind="optimise", round=1)
    with pytest.raises(ValueError, match="not numbered in order"):
        Tree([wrong(2, ask)])
