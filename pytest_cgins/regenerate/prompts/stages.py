"""What a search works on first, and what after it, by kind of op and language: the text of one stage.

The stages are data, in `templates/stages.yaml`. Figures go before the plan: a stage is where to look first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from pytest_cgins.config import document
from pytest_cgins.config.document import Section
from pytest_cgins.regenerate.methods.axis_budget import LEAST_GAP, TIES, Gaps
from pytest_cgins.regenerate.methods.model import Axis
from pytest_cgins.regenerate.prompts import workload
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.regenerate.prompts.templating import FOLDER, render
from pytest_cgins.regenerate.prompts.workload import Backend
from pytest_cgins.regenerate.search.stage import STAGES, Focus, Stage

DATA = FOLDER / "stages.yaml"
VERSION = 1
BUSY = 0.5
"""Where compute or memory is nearer to its peak than this, the other's gap is in the nature of the op."""
_OF_AXIS: Mapping[Axis, Stage] = {"compute": "structure", "memory": "memory", "latency": "parallelism"}
_BACKENDS: tuple[Backend, ...] = get_args(Backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """One stage of one kind of op."""

    title: str
    """What it is about, as a phrase."""
    everywhere: tuple[str, ...]
    """What to do, in every language."""
    of_backend: Mapping[Backend, tuple[str, ...]]
    """What to do besides, by language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stages of all kinds of ops."""

    families: Mapping[str, Mapping[Stage, Lines]]
    """By family."""
    constants: Mapping[str, str]
    """What may be tuned without another design, by language."""

    def lines(self, families: Sequence[str], backend: Backend, stage: Stage) -> tuple[str, ...]:
        """What to do in a stage, for an op of several kinds."""
        return tuple(
            line
            for family in families
            for it in (self.families[family][stage],)
            for line in (*it.everywhere, *it.of_backend[backend])
        )


@cache
def shipped() -> Plan:
    """The stages that come with the package."""
    return read(DATA)


def read(file: Path) -> Plan:
    """The stages of a file.

    Raises:
        ConfigError: it cannot be read, or something in it is missing, unknown or empty.
    """
    top = document.read(file)
    top.refuse_unknown(("version", "families", "constants"))
    version = top.require("version", remedy=f"write version: {VERSION}")
    if version.integer() != VERSION:
        version.fail(f"version {version.scalar()} of a file of stages", remedy=f"write version: {VERSION}")
    families = top.require("families", remedy="write families:").mapping("families")
    constants = top.require("constants", remedy="write constants:").mapping("constants")
    names = get_args(workload.Language)
    constants.refuse_unknown(names)
    known = (*get_args(workload.Family), "backward")
    families.refuse_unknown(known)
    return Plan(
        families={name: _family(families, name) for name in known},
        constants={name: constants.require(name, remedy="write it").text() for name in names},
    )


def _family(families: Section, name: str) -> dict[Stage, Lines]:
    it = families.require(name, remedy="write its stages").mapping(f'family "{name}"')
    it.refuse_unknown(STAGES)
    stages: dict[Stage, Lines] = {}
    for stage in STAGES:
        section = it.require(stage, remedy="write it").mapping(f'stage "{stage}" of family "{name}"')
        section.refuse_unknown(("title", "all", *_BACKENDS))
        stages[stage] = Lines(
            title=section.require("title", remedy="write what it is about").text(),
            everywhere=_texts(section, "all"),
            of_backend={backend: _texts(section, backend) for backend in _BACKENDS},
        )
    return stages


def _texts(section: Section, key: str) -> tuple[str, ...]:
    value = section.require(key, remedy="write a list of sentences")
    return tuple(item.text() for item in value.items())


def described(context: Context, focus: Focus | None, gaps: Gaps | None = None) -> str:
    """The section of a prompt; "" for a prompt that has no stage.

    Args:
        context: of the kernel.
        focus: as `search.stage.stage_of` says.
        gaps: how far the parent is from the peaks; None if the prompt shows no figures.
    """
    if focus is None:
        return ""
    plan = shipped()
    backend = workload.backend_of(context)
    families: list[str] = [*workload.families_of(context.target.op)]
    if "@backward" in context.target.op:
        families.append("backward")
    axis = leading(gaps) if gaps is not None else None
    return render(
        "stage.md",
        focus=focus,
        stages=STAGES,
        titles={stage: plan.families[families[0]][stage].title for stage in STAGES},
        lines={stage: plan.lines(families, backend, stage) for stage in STAGES},
        constants=plan.constants[workload.language_of(context)],
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
