"""The sets of inputs that probes ask for, beside those that decide whether a kernel is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pytest_cgins.verify import arguments, layouts, precision, sizes, special
from pytest_cgins.verify.maker import REFUSALS, InputSet, Maker, base_of
from pytest_cgins.verify.semantics import Semantics
from pytest_cgins.verify.wishes import Wishes

Made = tuple[list[InputSet], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What sets are made of."""

    maker: Maker
    """Of the trace."""
    semantics: Semantics
    """Of its call."""
    recorded: Sequence[Tensor]
    """Its argument tensors, on the CPU."""
    core: Sequence[InputSet]
    """The sets that decide, at least one."""
    key: str
    """Seed of the session and name of the trace."""

    @property
    def base(self) -> InputSet:
        """The one whose numbers those of the others are."""
        return base_of(self.core)


def make(of: Ingredients, wishes: Wishes) -> tuple[list[InputSet], dict[str, str]]:
    """The sets of all probes that are switched on, and why others have none, by their names."""
    makers: dict[str, Callable[[], Made]] = {
        sizes.NAME: lambda: sizes.sets(
            of.maker, of.semantics, of.recorded, of.key, interpreted=wishes.interpreted
        ),
        arguments.NAME: lambda: arguments.sets(of.maker, of.semantics, of.base, of.key),
        layouts.NAME: lambda: layouts.sets(of.base, wishes),
        special.NAME: lambda: special.sets(of.maker, of.semantics, of.base),
        precision.NAME: lambda: precision.sets(of.maker, of.semantics, of.base),
    }
    sets: list[InputSet] = []
    missing: dict[str, str] = {}
    for name, made_by in makers.items():
        if name not in wishes.probes:
            continue
        try:
            made, why = made_by()
        except REFUSALS as error:
            made, why = [], f"torch refuses the inputs ({(str(error).splitlines() or [''])[0]})"
        sets += made
        if why:
            missing[name] = why
    return sets, missing
