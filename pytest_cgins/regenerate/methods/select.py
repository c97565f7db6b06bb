"""Which methods are offered for a round, the most promising first. The model chooses; `validator` checks."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.methods.axis_budget import TIES, AxisBudget
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.model import Family, Language, Method
from pytest_cgins.regenerate.methods.registry import Registry

SPARE = 4
"""Methods an axis that are offered beyond its budget, so that there is a choice."""
_NO_DATA = 0.5
"""Severity of a method whose metrics nobody measured."""
_OF_FAMILY = 0.3
"""For methods that are for few kinds of workload, this one among them."""
_WORKED = 1.5
"""For what worked elsewhere: more than a step of priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation(Document):
    """What a round knows of its kernel."""

    kernel: str
    """Name of the kernel."""
    device: DeviceName
    """Where it runs."""
    device_name: str
    """`NVIDIA H200`."""
    capability: int = 0
    """Compute capability: 90 for 9.0; 0 on a CPU."""
    language: Language
    """What it is written in."""
    families: tuple[Family, ...] = ()
    """Kinds of workload; () where that is not known."""
    dtypes: tuple[str, ...] = ()
    """Types of the inputs, as torch names them; () where that is not known."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of ncu and figures of ours, as triggers name them."""
    applied: tuple[str, ...] = ()
    """Methods that are in the kernel already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Document):
    """A method that may be chosen."""

    method: Method
    """Which."""
    score: float
    """How promising; larger comes first."""
    why: tuple[str, ...]
    """What speaks for and against it, in words."""


def select(
    registry: Registry, situation: Situation, budget: AxisBudget, memory: MethodMemory
) -> tuple[Offer, ...]:
    """Offers of each axis that has a budget: the axis with most first, then by score, priority, generation and id."""
    barred = not_again(situation, memory)
    fit = [
        method
        for method in registry
        if budget.of(method.axis) and method.id not in barred and not unfit(method, registry, situation)
    ]
    offers = [
        _offer(method, situation, memory)
        for method in fit
        if method.suits(situation.families, situation.dtypes)
    ]
    offers.sort(key=_order)
    chosen: list[Offer] = []
    for axis in sorted(TIES, key=lambda axis: (-budget.of(axis), TIES.index(axis))):
        most = budget.of(axis) + SPARE
        chosen += [offer for offer in offers if offer.method.axis == axis][:most]
    return tuple(chosen)


def _order(offer: Offer) -> tuple[float, int, int, str]:
    """By score; then what only newer devices have, as it was made for them."""
    return -offer.score, offer.method.priority, -offer.method.least_capability, offer.method.id


def not_again(situation: Situation, memory: MethodMemory) -> dict[str, str]:
    """Methods that are not to be repeated, and what became of them, in words."""
    found = memory.not_again(
        kernel=situation.kernel, device_name=situation.device_name, language=situation.language
    )
    return {name: f"{one.result} in round {one.round} of run {one.run}" for name, one in found.items()}


def unfit(method: Method, registry: Registry, situation: Situation) -> str:
    """Why a method cannot be applied here, in words; "" if it can."""
    if method.device != situation.device:
        return f"is for {method.device}, and the kernel runs on {situation.device}"
    if situation.language not in method.languages:
        return f"cannot be written in {situation.language}"
    if device_of(situation.device).is_cuda and not method.runs_on(situation.capability):
        most = f" to {method.most_capability}" if method.most_capability < 9999 else ""
        return f"needs compute capability {method.least_capability}{most}, and the device has {situation.capability}"
    if method.id in situation.applied:
        return "is in the kernel already"
    if clash := conflicts(method, situation.applied, registry):
        return f"conflicts with {', '.join(clash)}, which is in the kernel"
    if method.requires and not any(_reachable(name, registry, situation) for name in method.requires):
        return f"requires {' or '.join(method.requires)}, which cannot be applied here"
    return ""


def conflicts(method: Method, others: tuple[str, ...], registry: Registry) -> list[str]:
    """Those of other methods that it cannot stand beside, whichever of the two says so."""
    return [
        name
        for name in others
        if name in method.conflicts or (name in registry and method.id in registry.get(name).conflicts)
    ]


def _reachable(name: str, registry: Registry, situation: Situation) -> bool:
    """Whether a required method is in the kernel, or could be."""
    other = registry.get(name)
    return name in situation.applied or (
        situation.language in other.languages and other.runs_on(situation.capability)
    )


def _offer(method: Method, situation: Situation, memory: MethodMemory) -> Offer:
    severity = method.severity(situation.metrics)
    score = (3 - method.priority) + 2 * (_NO_DATA if severity is None else severity)
    if method.families and situation.families:
        score += _OF_FAMILY
    why = []
    for trigger in method.triggers:
        value = situation.metrics.get(trigger.metric)
        if value is not None:
            why.append(f"{trigger.metric} is {value:.4g} (good: {trigger.good:g}, bad: {trigger.bad:g})")
    if severity is None and method.triggers:
        why.append("its metrics were not measured")
    if worked := memory.worked(families=situation.families, language=situation.language).get(method.id):
        score += _WORKED
        gain = f", {worked.slowdown_without:.2f} times" if worked.slowdown_without else ""
        why.append(f"worked for {worked.kernel} on {worked.device_name}{gain}")
    latest = memory.latest(
        kernel=situation.kernel, device_name=situation.device_name, language=situation.language
    ).get(method.id)
    if latest is not None and latest.result == "unknown" and latest.proven is not True:
        score -= 1
        why.append(f"was tried in round {latest.round} of run {latest.run}, without proof that it helped")
    return Offer(method=method, score=round(score, 6), why=tuple(why))
