"""What the candidates of a search teach about the methods that are in them.

A method's worth is what happens without it. That is told by an ablation; by a step that added it and nothing else; and, of
a round that came out no faster, by all that the round tried. A candidate that is faster by several methods at once says
nothing of any one of them, and one that is wrong says nothing of what it wanted.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_cgins.regenerate.ablation import attribute
from pytest_cgins.regenerate.attempt import INCUMBENT, Attempt
from pytest_cgins.regenerate.methods.classes import Tried, classify
from pytest_cgins.regenerate.methods.sass_signature import Shown
from pytest_cgins.regenerate.methods.select import Situation
from pytest_cgins.regenerate.search.policy import name_of
from pytest_cgins.regenerate.search.tree import Tree

Marks = Mapping[int, Mapping[str, Shown]]
"""Number of a candidate → what machine code says of methods."""


_Proof = tuple[bool | None, float | None, str]
"""Of one method: whether it is proven to help; time without it over time with it; how that is known."""


def lessons(tree: Tree, marks: Marks, situation: Situation, *, run: str) -> tuple[Tried, ...]:
    """All that is known by now, one entry a method and round; told again it says the same, or more.

    Args:
        tree: all candidates until now.
        marks: what machine code says of the right ones; a method that is not in it is unknown.
        situation: of the kernel.
        run: the run's id.
    """
    found: dict[tuple[int, str], Tried] = {}
    # The champion of a round comes last: what it says of a method is what counts.
    for candidate in sorted(tree, key=lambda candidate: (candidate.beats_champion, candidate.number)):
        ask = tree.ask(candidate.number)
        if not candidate.is_right or ask.kind == "ablate":
            continue
        for method in tree.added(candidate.number):
            shown = marks.get(candidate.number, {}).get(method, "unknown")
            proof = _proof(tree, candidate, method)
            if proof is None and shown != "absent":
                continue
            proven, slowdown, note = proof or (None, None, "it is not in the machine code")
            found[ask.round, method] = Tried(
                kernel=situation.kernel,
                device_name=situation.device_name,
                language=situation.language,
                method=method,
                result=classify(shown, proven),
                shown=shown,
                proven=proven,
                slowdown_without=slowdown,
                families=situation.families,
                run=run,
                round=ask.round,
                note=note,
            )
    return tuple(found.values())


def _proof(tree: Tree, candidate: Attempt, method: str) -> _Proof | None:
    """What is known of a method in a candidate; None if nothing follows."""
    ablated = [child for child in tree.children(candidate.number) if tree.ask(child.number).method == method]
    if ablated:
        return _of_ablation(candidate, ablated[-1], method)
    if candidate.beats_champion:
        return _of_step(tree, candidate, method)
    together = tree.of_round(tree.ask(candidate.number).round)
    if any(other.beats_champion for other in together if other is not candidate):
        return None
    return False, None, "nothing in its round was faster"


def _of_ablation(candidate: Attempt, without: Attempt, method: str) -> _Proof:
    evaluations = without.trials[-1].evaluations if without.trials else ()
    found = attribute(method, evaluations)
    slowdown = None
    if found.state != "not-ablated" and without.time_ratio is not None and candidate.time_ratio:
        slowdown = without.time_ratio / candidate.time_ratio
    proven = None if found.state == "not-ablated" else found.contributes
    note = f"candidate {without.number} is candidate {candidate.number} without it: {found.message}"
    return proven, slowdown, note


def _of_step(tree: Tree, candidate: Attempt, method: str) -> _Proof | None:
    parent = tree.source_of(candidate.number)
    if tree.added(candidate.number) != (method,) or parent.time_ratio is None or not candidate.time_ratio:
        return None
    # `beats_champion` was proven against the best one until then: that must have been the parent.
    earlier = [other.number for other in tree if other.number < candidate.number and other.beats_champion]
    if (earlier[-1] if earlier else INCUMBENT) != parent.number:
        return None
    note = f"candidate {candidate.number} is {name_of(parent.number)} with it, and nothing else that is named"
    return True, parent.time_ratio / candidate.time_ratio, note
