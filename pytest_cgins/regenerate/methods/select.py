"""Which methods are offered for a round, the most promising first. The model chooses; `validator` checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pytest_cgins.core import documents
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import AnswerError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.regenerate.methods.axis_budget import TIES, AxisBudget
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.definition import Family, Language, Method
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

    @property
    def place(self) -> tuple[str, str, Language]:
        """What results are remembered for."""
        return self.kernel, self.device_name, self.language


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
    suited = [method for method in registry if method.suits(situation.families, situation.dtypes)]
    offers = [
        _offer(method, situation, memory)
        for method in suited
        if budget.of(method.axis) and method.id not in barred and not unfit(method, registry, situation)
    ]
    # What only newer devices have was made for them.
    offers.sort(key=lambda it: (-it.score, it.method.priority, -it.method.least_capability, it.method.id))
    chosen: list[Offer] = []
    for axis in sorted(TIES, key=lambda axis: (-budget.of(axis), TIES.index(axis))):
        most = budget.of(axis) + SPARE
        chosen += [offer for offer in offers if offer.method.axis == axis][:most]
    return tuple(chosen)


def not_again(situation: Situation, memory: MethodMemory) -> dict[str, str]:
    """Methods that are not to be repeated, and what became of them, in words."""
    found = memory.not_again(*situation.place)
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
    latest = memory.latest(*situation.place).get(method.id)
    if latest is not None and latest.result == "unknown" and latest.proven is not True:
        score -= 1
        why.append(f"was tried in round {latest.round} of run {latest.run}, without proof that it helped")
    return Offer(method=method, score=round(score, 6), why=tuple(why))


_BLOCK = re.compile(r"```[^\n]*\n(\s*\{.*?\})\s*```", re.DOTALL)
_LIMIT = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick(Document):
    """A method that was chosen."""

    method: str
    """Its id."""
    why: str
    """What in the evidence speaks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Document):
    """What a model chose."""

    picks: tuple[Pick, ...]
    """The methods of the round."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Offered methods of better priority that were left out, each with its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint(Document):
    """What is wrong with a choice."""

    code: str
    """Stable: `unknown`, `twice`, `budget`, `unfit`, `not-again`, `conflict`, `requires`, `no-reason`, `priority`, `empty`."""
    method: str
    """Its id; "" where it is about the whole choice."""
    message: str
    """In words, for the next prompt, with what to do."""


def read_choice(text: str) -> Choice:
    """A choice from an answer: its first fenced block that is one, or the whole text.

    Raises:
        AnswerError: there is none.
    """
    error: ValueError | None = None
    for candidate in [*(found[1] for found in _BLOCK.finditer(text[:_LIMIT])), text[:_LIMIT]]:
        try:
            return documents.load(Choice, candidate)
        except ValueError as wrong:
            error = error or wrong
    raise AnswerError(
        f"no choice of methods: {' '.join(str(error).split())[:200]}",
        code="no-choice",
        remedy='answer with a JSON block {"picks": [{"method": ID, "why": REASON}], "skipped": {ID: REASON}}',
    )


def validate(
    choice: Choice,
    offers: Sequence[Offer],
    *,
    registry: Registry,
    situation: Situation,
    budget: AxisBudget,
    memory: MethodMemory,
) -> tuple[Complaint, ...]:
    """Everything that is wrong with a choice; () if it holds.

    Args:
        choice: what the model chose.
        offers: what it was offered.
        registry: of all methods.
        situation: what the round knows of its kernel.
        budget: methods an axis.
        memory: of earlier rounds and runs.
    """
    if not choice.picks:
        return (_say("empty", "", "no method was chosen: choose at least one"),)
    barred = not_again(situation, memory)
    found: list[Complaint] = []
    methods: dict[str, Method] = {}
    for pick in choice.picks:
        if pick.method not in registry:
            remedy = nearest(pick.method, registry.methods) or "choose one that is offered"
            found.append(_say("unknown", pick.method, f'there is no method "{pick.method}": {remedy}'))
        elif pick.method in methods:
            found.append(_say("twice", pick.method, f"{pick.method} was chosen twice: name it once"))
        else:
            methods[pick.method] = registry.get(pick.method)
            if not pick.why.strip():
                found.append(
                    _say("no-reason", pick.method, f"{pick.method} was chosen without a reason: give one")
                )
    for name, method in methods.items():
        if why := unfit(method, registry, situation):
            found.append(_say("unfit", name, f"{name} {why}: choose another"))
        if name in barred:
            found.append(_say("not-again", name, f"{name} was {barred[name]}: choose another"))
    found += _over_budget(methods, budget)
    found += _clashes(methods, registry, situation)
    found += _skipped(choice, methods, offers, registry)
    return tuple(found)


def _say(code: str, method: str, message: str) -> Complaint:
    return Complaint(code=code, method=method, message=message)


def _over_budget(methods: dict[str, Method], budget: AxisBudget) -> Iterator[Complaint]:
    for axis in TIES:
        names = [name for name, method in methods.items() if method.axis == axis]
        if len(names) > budget.of(axis):
            yield _say(
                "budget", names[-1],
                f"{counted(len(names), 'method')} of the {axis} axis ({', '.join(names)}), and its budget is {budget.of(axis)}: "
                "leave out the least promising",
            )  # fmt: skip


def _clashes(methods: dict[str, Method], registry: Registry, situation: Situation) -> Iterator[Complaint]:
    names = tuple(methods)
    for place, (name, method) in enumerate(methods.items()):
        for other in conflicts(method, names[:place], registry):
            yield _say("conflict", name, f"{name} and {other} cannot be in one kernel: choose one of them")
        at_hand = {*names, *situation.applied}
        if method.requires and not at_hand & set(method.requires):
            yield _say(
                "requires", name,
                f"{name} needs {' or '.join(method.requires)} in the kernel: choose that with it, or first",
            )  # fmt: skip


def _skipped(
    choice: Choice, methods: dict[str, Method], offers: Sequence[Offer], registry: Registry
) -> Iterator[Complaint]:
    """Offered methods of better priority than a chosen one of their axis, without a reason."""
    worst = {
        axis: max((method.priority for method in methods.values() if method.axis == axis), default=0)
        for axis in TIES
    }
    for offer in offers:
        better = offer.method
        if better.id in methods or better.priority >= worst[better.axis]:
            continue
        # What cannot stand beside a chosen method needs no other reason.
        if conflicts(better, tuple(methods), registry):
            continue
        if not choice.skipped.get(better.id, "").strip():
            yield _say(
                "priority", better.id,
                f"{better.id} (priority {better.priority}) is to be tried before methods of priority {worst[better.axis]} "
                f"of the {better.axis} axis: choose it, or say in skipped why not",
            )  # fmt: skip
