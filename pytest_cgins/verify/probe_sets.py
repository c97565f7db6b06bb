"""The sets of inputs that probes ask for, beside those that decide whether a kernel is right."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from pytest_cgins.core.model import OpCall
from pytest_cgins.packs import backward, call, forward
from pytest_cgins.verify import arguments, layouts, precision, size_trial, sizes, special
from pytest_cgins.verify.blindness import blind_to
from pytest_cgins.verify.input_sets import REFUSALS, InputSet, InputSetBuilder, base_of
from pytest_cgins.verify.prepare_options import PrepareOptions
from pytest_cgins.verify.semantics import Semantics

Made = tuple[list[InputSet], str]


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What sets are made of."""

    builder: InputSetBuilder
    """Of the trace."""
    semantics: Semantics
    """Of its call."""
    recorded: Sequence[Tensor]
    """Its argument tensors, on the CPU."""
    core: Sequence[InputSet]
    """The sets that decide, at least one."""
    key: str
    """Seed of the session and name of the trace."""
    others: Sequence[OpCall] = ()
    """What else was recorded of the op."""

    @property
    def base(self) -> InputSet:
        """The one whose numbers those of the others are."""
        return base_of(self.core)

    @cached_property
    def small(self) -> InputSet:
        """The base, or where that is large the same call on smaller arguments, if torch takes any."""
        if (
            self.builder.random
            or sum(span.nbytes for span in self.base.layout.spans) <= size_trial.LIMIT_BYTES
        ):
            return self.base
        return size_trial.small(self.builder, self.semantics, self.recorded, self.key) or self.base

    @cached_property
    def ranked(self) -> InputSet | None:
        """The call in a dimension more, on small arguments, if torch takes it."""
        if self.builder.random:
            return None
        return size_trial.ranked(self.builder, self.semantics, self.recorded, self.key)


def make(of: Ingredients, options: PrepareOptions) -> tuple[list[InputSet], dict[str, str], list[str]]:
    """The sets of all probes that are switched on, why others have none, by their names, and which sets tell nothing."""
    makers: dict[str, Callable[[str], Made]] = {
        sizes.NAME: lambda key: sizes.sets(
            of.builder, of.semantics, of.recorded, key, interpreted=options.interpreted
        ),
        arguments.NAME: lambda key: arguments.sets(
            of.builder,
            of.semantics,
            of.base,
            key,
            of.small,
            of.others,
            # Along another axis there are often a thousand rows where there were three.
            None if options.interpreted else of.ranked,
        ),
        # What a kernel is said to take it must take as it was recorded, and not as small as we like it.
        layouts.NAME: lambda key: (
            layouts.sets(of.base, of.semantics, key) if options.claims else _layouts(of, key)
        ),
        special.NAME: lambda _: special.sets(of.builder, of.semantics, of.base),
        precision.NAME: lambda _: precision.sets(of.builder, of.semantics, of.base),
    }
    sets: list[InputSet] = []
    missing: dict[str, str] = {}
    notes: list[str] = []
    for name, made_by in makers.items():
        if name not in options.probes:
            continue
        made, why, blind = _telling(name, made_by, of.key)
        sets += made
        notes += blind
        if why:
            missing[name] = why
    return sets, missing, notes


def _layouts(of: Ingredients, key: str) -> Made:
    """The sets in other layouts, and those that nobody claims to take: in a dimension more, and at a stride of 0."""
    made, why = layouts.sets(of.small, of.semantics, key, of.ranked)
    made += layouts.repeated(of.small, of.semantics, of.builder)
    return made, "" if made else why


def _why_none(error: Exception) -> str:
    """What torch said as it ran the op; what was raised elsewhere is a defect of ours, and told as that."""
    said = (str(error).splitlines() or [""])[0]
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(code.co_filename in (call.__file__, backward.__file__, forward.__file__) for code in frames):
        return f"torch refuses the inputs ({said})"
    place = f"{Path(frames[-1].co_filename).name}, {frames[-1].co_name}"
    return f"its inputs could not be made, which is a defect of pytest-cgins: {type(error).__name__}: {said} ({place})"


def _telling(name: str, made_by: Callable[[str], Made], key: str) -> tuple[list[InputSet], str, list[str]]:
    """The sets of a probe, or why there are none; those that tell nothing are drawn once more, and named if that is no help."""
    kept: dict[str, tuple[InputSet, str]] = {}
    for draw in (key, f"{key}/again"):
        try:
            made, why = made_by(draw)
        except REFUSALS as error:
            made, why = [], _why_none(error)
        if not made and not kept:
            return [], why, []
        for one in made:
            # Of special values only the places are looked at.
            blind = "" if name == special.NAME else blind_to(one.expected)
            if not blind or one.expected.name not in kept:
                kept[one.expected.name] = (one, blind)
        if not any(blind for _, blind in kept.values()):
            break
    # Without the sets' names, which differ from case to case, a summary counts them together.
    told = [blind for _, blind in kept.values() if blind]
    notes = [
        f"the probe {name} is without power on some of its inputs: torch's own answers to them do not tell {blind}"
        for blind in dict.fromkeys(told)
    ]
    return [one for one, _ in kept.values()], "", notes
