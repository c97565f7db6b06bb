"""Which axis it is the turn of: a search goes through them where no figures say where most is to win."""

from __future__ import annotations

from pytest_cgins.regenerate.attempt import INCUMBENT, Ask
from pytest_cgins.regenerate.methods.definition import AXES, Axis
from pytest_cgins.regenerate.search.tree import Tree


def turn_of(ask: Ask, tree: Tree) -> Axis | None:
    """Arithmetic and its structure, then traffic, then waiting; None after these, and for a single pass.

    Args:
        ask: what the policy wants.
        tree: all candidates until then.
    """
    if not ask.staged:
        return None
    start = ask.parent if tree[ask.parent].is_right else tree.source_of(ask.parent).number
    done = _done(tree, start, before=ask.round)
    return AXES[done] if done < len(AXES) else None


def _done(tree: Tree, number: int, *, before: int) -> int:
    """Axes that lie behind a kernel when a round begins from it."""
    tried = {
        tree.ask(one.number).round
        for one in tree
        if one.is_right
        and tree.ask(one.number).kind != "ablate"
        and tree.source_of(one.number).number == number
    }
    here = sum(1 for one in tried if one < before)
    if number == INCUMBENT:
        return here
    return here + 1 + _done(tree, tree.source_of(number).number, before=tree.ask(number).round)
