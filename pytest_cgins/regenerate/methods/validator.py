"""Whether a choice of methods for a round holds to the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pytest_cgins.core import documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import AnswerError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.regenerate.methods.axis_budget import TIES, AxisBudget
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.model import Method
from pytest_cgins.regenerate.methods.registry import Registry
from pytest_cgins.regenerate.methods.select import Offer, Situation, conflicts, not_again, unfit

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
