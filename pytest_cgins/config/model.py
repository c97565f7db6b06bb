"""`models:` of cgins.yaml: whole models that are run with the kernels in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pytest_cgins.config import timing_gate
from pytest_cgins.config.document import Value, keys, one_of
from pytest_cgins.config.implementation import check_name, target_of
from pytest_cgins.config.kernel import Tolerance, difference
from pytest_cgins.config.timing_gate import ResourceLimits, TimingGate
from pytest_cgins.core.device import DeviceName


def _made_by(value: Value) -> str:
    return target_of(value, "name a function that returns (model, inputs), e.g. models.bert:make")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model of cgins.yaml."""

    name: str
    """Its key."""
    make: Annotated[str, _made_by]
    """`MODULE:FUNCTION` that returns the model and its inputs."""
    device: Annotated[DeviceName, one_of(DeviceName)] = "cuda"
    """Type of the device that it runs on."""
    chosen: Annotated[tuple[str, ...], Value.texts, "kernels"] = ()
    """`NAME` or `NAME/IMPLEMENTATION` of those that are put in; () for the first implementation of each."""
    tolerance: Annotated[Tolerance, difference(Tolerance, ("derived",), "{rtol: 1e-3, atol: 1e-5}")] = field(
        default_factory=Tolerance
    )
    """How far its outputs may lie from those without kernels, where there is no fp64 reference of it."""
    timing: TimingGate = field(default_factory=TimingGate)
    """How its time is judged."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""


def model(value: Value, gate: timing_gate.Settings) -> ModelEntry:
    """A model, whose own `gate` comes before that of the file."""
    name = value.key
    check_name(value, name, "model")
    section = value.mapping(f'model "{name}"')
    section.refuse_unknown(("make", *keys(ModelEntry), "gate"))
    section.require("make", remedy="name what makes it, e.g. make: models.bert:make")
    own = section.get("gate")
    timing, limits = timing_gate.of_kernel(own, gate)
    if own is not None and limits != ResourceLimits():
        own.fail(f"{section.title} has limits of registers or spills", remedy="give them to its kernels")
    return ModelEntry(name=name, timing=timing, line=section.line, **section.fields(ModelEntry, others=True))
