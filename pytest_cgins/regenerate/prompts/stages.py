"""What a search works on first, and what after it, by kind of op and language: the text of one stage.

The stages are data, in `templates/stages.yaml`. Figures go before the plan: a stage is where to look first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args

from pytest_cgins.regenerate.attempt import INCUMBENT, Ask
from pytest_cgins.regenerate.methods.axis_budget import LEAST_GAP, TIES, Gaps
from pytest_cgins.regenerate.methods.definition import Axis
from pytest_cgins.regenerate.prompts import workload
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.regenerate.prompts.templating import FOLDER, render
from pytest_cgins.regenerate.prompts.workload import Backend
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


BUSY = 0.5
"""Where compute or memory is nearer to its peak than this, the other's gap is in the nature of the op."""
_OF_AXIS: Mapping[Axis, Stage] = {"compute": "structure", "memory": "memory", "latency": "parallelism"}


@cache
def shipped() -> dict[str, Any]:
    """The stages of all kinds of ops, as their file has them: `families` and `constants`."""
    import yaml

    stages: dict[str, Any] = yaml.safe_load((FOLDER / "stages.yaml").read_text(encoding="utf-8"))
    return stages


def lines_of(families: Sequence[str], backend: Backend, stage: Stage) -> list[str]:
    """What to do in a stage, for an op of several kinds."""
    stages = [shipped()["families"][family][stage] for family in families]
    return [line for lines in stages for line in (*lines["all"], *lines[backend])]


def described(context: Context, focus: Focus | None, gaps: Gaps | None = None) -> str:
    """The section of a prompt; "" for a prompt that has no stage.

    Args:
        context: of the kernel.
        focus: as `search.stage.stage_of` says.
        gaps: how far the parent is from the peaks; None if the prompt shows no figures.
    """
    if focus is None:
        return ""
    backend = workload.backend_of(context)
    families: list[str] = [*workload.families_of(context.target.op)]
    if "@backward" in context.target.op:
        families.append("backward")
    axis = leading(gaps) if gaps is not None else None
    return render(
        "stage.md",
        focus=focus,
        stages=STAGES,
        titles={stage: shipped()["families"][families[0]][stage]["title"] for stage in STAGES},
        lines={stage: lines_of(families, backend, stage) for stage in STAGES},
        constants=shipped()["constants"][workload.language_of(context)],
        gaps=gaps,
        axis=axis,
        points_to=_OF_AXIS[axis] if axis is not None else None,
    )


def leading(gaps: Gaps) -> Axis | None:
    """The axis with most to win; None if nothing was measured, or all are near their peaks.

    A kernel that keeps the memory busy has a large gap of compute by nature, and the reverse: neither counts.
    """
    by_axis = {axis: gap for axis in TIES if (gap := gaps.of(axis)) is not None}
    compute, memory = by_axis.get("compute"), by_axis.get("memory")
    if compute is not None and memory is not None and min(compute, memory) < BUSY and compute != memory:
        del by_axis["compute" if compute > memory else "memory"]
    best = max(by_axis, key=lambda axis: by_axis[axis], default=None)
    return best if best is not None and by_axis[best] >= LEAST_GAP else None
