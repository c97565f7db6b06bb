"""Which stage of its search a prompt belongs to, by the tree alone: so a resumed search says the same.

A search works on one thing after the other: structure, memory, parallelism, finish. What was done on the way to the
parent lies behind it, and so does a stage that was tried from the parent and came out right: whether it gained or not,
another one is due. A round in which nothing came out right says nothing of its stage, which is tried again.
"""

from __future__ import annotations

from typing import Literal, get_args

from pytest_cgins.regenerate.model import INCUMBENT, Ask
from pytest_cgins.regenerate.search.tree import Tree

Stage = Literal["structure", "memory", "parallelism", "finish"]
STAGES: tuple[Stage, ...] = get_args(Stage)

Focus = Literal["structure", "memory", "parallelism", "finish", "all", "again"]
"""A stage; all of them in one pass; or all were gone through, and the times say where to go back to."""


def stage_of(ask: Ask, tree: Tree) -> Focus | None:
    """What a prompt is to focus on; None for mendings and ablations, which are about what is there.

    Args:
        ask: what the policy wants.
        tree: all candidates until then.
    """
    if ask.kind not in ("optimise", "regenerate"):
        return None
    if not ask.staged:
        return "all"
    start = ask.parent if tree[ask.parent].is_right else _start(tree, ask.parent)
    done = _done(tree, start, before=ask.round)
    return STAGES[done] if done < len(STAGES) else "again"


def _start(tree: Tree, number: int) -> int:
    """The right kernel that a candidate was begun from: its mendings are not counted."""
    number = tree.ask(number).parent
    while not tree[number].is_right:
        number = tree.ask(number).parent
    return number


def _done(tree: Tree, number: int, *, before: int) -> int:
    """Stages that lie behind a kernel when a round begins from it."""
    tried = {
        tree.ask(one.number).round
        for one in tree
        if one.is_right and tree.ask(one.number).kind != "ablate" and _start(tree, one.number) == number
    }
    here = sum(1 for one in tried if one < before)
    if number == INCUMBENT:
        return here
    return here + 1 + _done(tree, _start(tree, number), before=tree.ask(number).round)
