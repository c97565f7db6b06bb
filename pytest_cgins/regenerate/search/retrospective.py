"""What a search believed of methods, and what came of it: derived from its journal, and from nobody's opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

from pytest_cgins.regenerate.attempt import Attempt, Target
from pytest_cgins.regenerate.conversation import Request
from pytest_cgins.regenerate.journal.journal import Journal, load
from pytest_cgins.regenerate.methods.definition import AXES, Axis
from pytest_cgins.regenerate.methods.registry import shipped
from pytest_cgins.regenerate.prompts import methods
from pytest_cgins.regenerate.search.summary_model import Belief, Diagnosis, Retrospective
from pytest_cgins.regenerate.search.tree import Tree


def retrospective(journal: Journal, target: Target, attempts: Sequence[Attempt]) -> Retrospective:
    """Of a search, over or not."""
    # Of a round that is being tried, a later candidate may be known before an earlier one.
    in_order = takewhile(lambda pair: pair[0] == pair[1].number, enumerate(attempts, 1))
    tree = Tree([attempt for _, attempt in in_order])
    added = {one.number: tree.added(one.number) for one in tree if tree.ask(one.number).kind != "ablate"}
    named = dict.fromkeys(method for those in added.values() for method in those)
    beliefs = [
        _belief(journal, target, tree, method, [number for number, those in added.items() if method in those])
        for method in named
    ]
    prompts = sorted((journal.folder / target.name).glob("attempt-*/generator/request.json"))
    asked = (message.text for file in prompts for message in load(Request, file).messages)
    offered = dict.fromkeys(method for text in asked for method in methods.offered_in(text))
    return Retrospective(
        beliefs=tuple(
            sorted(beliefs, key=lambda one: (one.outcome != "kept", one.time_ratio or float("inf")))
        ),
        diagnoses=tuple(_diagnoses(tree, added)),
        never_named=tuple(method for method in offered if method not in named),
        lost=dict(Counter(one.reason for one in attempts if not one.is_right).most_common()),
    )


def _belief(journal: Journal, target: Target, tree: Tree, method: str, numbers: Sequence[int]) -> Belief:
    ratios = [
        own / before
        for number in numbers
        if (own := tree[number].time_ratio) is not None
        and (before := tree.source_of(number).time_ratio) is not None
    ]
    return Belief(
        method=method,
        axis=_axis(method),
        expected=_expected(journal, target, tree, method, numbers[0]),
        candidates=tuple(numbers),
        time_ratio=min(ratios, default=None),
        outcome="kept" if method in _kept(tree) else "dropped" if ratios else "lost",
    )


def _kept(tree: Tree) -> set[str]:
    """Methods of the kernel that was accepted, else of the best one."""
    best = next((one.number for one in tree if one.outcome == "accepted"), tree.champion.number)
    way = [best, *(one.number for one in tree.ancestors(best))]
    return {*tree.applied(best)} - {tree.ask(number).method for number in way}


def _axis(method: str) -> Axis | None:
    return shipped().get(method).axis if method in shipped() else None


def _expected(journal: Journal, target: Target, tree: Tree, method: str, number: int) -> str:
    """The worst of the figures that the prompt had and the method is for, else the gap of its axis."""
    ask, axis = tree.ask(number), _axis(method)
    evidence = journal.evidence(target, ask.parent) if ask.shows_evidence else None
    if evidence is None or axis is None:
        return ""
    known = [one for one in shipped().get(method).triggers if one.metric in evidence.figures]
    worst = max(known, key=lambda one: one.severity(evidence.figures[one.metric]), default=None)
    if worst is not None:
        return (
            f"{worst.metric} {evidence.figures[worst.metric]:.4g} (good: {worst.good:g}, bad: {worst.bad:g})"
        )
    gap = evidence.gaps.of(axis)
    return "" if gap is None else f"{axis} gap {gap:.2f}"


def _diagnoses(tree: Tree, added: dict[int, tuple[str, ...]]) -> Iterator[Diagnosis]:
    """Each axis for which answers named methods; who adds methods of two counts for both."""
    for axis in AXES:
        of_axis = [tree[number] for number, those in added.items() if axis in map(_axis, those)]
        if of_axis:
            right = sum(one.beats_champion for one in of_axis)
            yield Diagnosis(axis=axis, candidates=len(of_axis), right=right)
