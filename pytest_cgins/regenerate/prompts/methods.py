"""The methods that a prompt offers, and what an answer says that it took."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from pytest_cgins.core.errors import CginsError
from pytest_cgins.regenerate.methods import select
from pytest_cgins.regenerate.methods.axis_budget import TIES, AxisBudget, Gaps, axis_budget
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.definition import Axis, Family, Language
from pytest_cgins.regenerate.methods.registry import shipped
from pytest_cgins.regenerate.methods.select import Offer, Situation
from pytest_cgins.regenerate.prompts import workload
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.regenerate.prompts.templating import render

_LANGUAGES: dict[workload.Language, Language] = {
    "cpp": "cpp", "cuda": "cuda", "device": "cuda", "triton": "triton", "cute": "cute", "cute-dsl": "cute",
}  # fmt: skip
_FAMILIES = {"pooling": "convolution", "fused": "elementwise"}
"""Where the registry has another word."""
_CPP = re.compile(
    r"\w<\w+|\bSM\d+_\w+|\w::\w|CUTE_\w+|__\w+|template|"
    r"\b(?:CUTLASS|FastDivmod|NamedBarrier|Pipeline\w+|GmmaFP8\w+|Kernel\w+)\b"
)
"""Names of CuTe's C++, which its Python language writes in another way."""
_MOST_FIRST = 5
_LINE = re.compile(r"^\W*methods\W*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_OFFER = re.compile(r"^- `([\w.-]+)` \(priority \d\)", re.MULTILINE)
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What a round offers."""

    situation: Situation
    """What is known of the kernel."""
    budget: AxisBudget
    """Methods an axis."""
    memory: MethodMemory
    """Of earlier rounds and runs."""
    offered: tuple[Offer, ...]
    """The most promising first."""
    gaps: Gaps
    """How far the kernel is from the peaks."""

    def text(self, turn: Axis | None = None) -> str:
        """As a prompt says it; "" if nothing fits. Where no figures lead, it begins with the axis whose turn it is."""
        if not self.offered:
            return ""
        barred = select.not_again(self.situation, self.memory)
        return offered_text(
            self.offered, self.budget, self.situation.language, barred, leading=self.gaps.leading(), turn=turn
        )

    def complaints(self, answer: str) -> tuple[str, ...]:
        """What is wrong with the choice of an answer, in words; () if it holds, or says nothing."""
        try:
            choice = select.read_choice(answer)
        except CginsError:
            return ()
        violations = select.validate(
            choice, self.offered, registry=shipped(), situation=self.situation, budget=self.budget, memory=self.memory
        )  # fmt: skip
        return tuple(violation.message for violation in violations)


def offered_text(
    offered: Sequence[Offer],
    budget: AxisBudget,
    language: Language,
    barred: Mapping[str, str],
    *,
    leading: Axis | None = None,
    turn: Axis | None = None,
) -> str:
    """A section of a prompt: how many to choose, the offers, what not to try again, and how to answer.

    Args:
        offered: as `select` ranks them.
        budget: methods an axis.
        language: of the kernel.
        barred: methods that are not to be repeated, and why, as `select.not_again` gives them.
        leading: the axis with most to win, as figures say; None without.
        turn: the axis that is looked at first where none leads; None for no order.
    """
    first = leading or turn
    return render(
        "methods.md", offers=offered, budget=budget, language=language, barred=barred, leading=leading,
        first=first if first is not None and budget.of(first) else None,
        axes=sorted(TIES, key=lambda axis: axis != first),
    )  # fmt: skip


def offers(
    context: Context, memory: MethodMemory, *, gaps: Gaps, metrics: dict[str, float], applied: tuple[str, ...]
) -> Offers | None:
    """What is offered for a kernel; None for a language that no method is for.

    Args:
        context: of its prompt.
        memory: of earlier rounds and runs.
        gaps: how far it is from the peaks.
        metrics: figures that methods' triggers name.
        applied: ids of the methods that are in it already.
    """
    known = situation(context)
    if known is None:
        return None
    known = replace(known, metrics=metrics, applied=applied)
    budget = axis_budget(gaps)
    offered = select.select(shipped(), known, budget, memory)
    if workload.language_of(context) == "cute-dsl":
        offered = tuple(map(_without_cpp, offered))
    return Offers(situation=known, budget=budget, memory=memory, offered=offered, gaps=gaps)


def first_ones(context: Context, memory: MethodMemory) -> str:
    """For a kernel that is not there yet: what the most promising methods of first priority are, a line each."""
    offered = offers(context, memory, gaps=Gaps(), metrics={}, applied=())
    first = [offer.method for offer in offered.offered if offer.method.priority == 1] if offered else []
    return "\n".join(f"- {method.title}. {method.what}" for method in first[:_MOST_FIRST])


def situation(context: Context) -> Situation | None:
    """What is known of a kernel before anybody measured it; None for a language that no method is for."""
    language = _LANGUAGES.get(workload.language_of(context))
    if language is None:
        return None
    hardware = context.hardware
    family = workload.family_of(context.target.op)
    named = _FAMILIES.get(family, family)
    return Situation(
        kernel=context.target.kernel,
        device=context.target.device,
        device_name=hardware.name,
        capability=int(re.sub(r"\D", "", hardware.arch) or 0),
        language=language,
        families=(named,) if named in get_args(Family) else (),  # type: ignore[arg-type]
        dtypes=tuple(sorted({evaluation.case.dtype for evaluation in context.evaluations})),
    )


def _without_cpp(offer: Offer) -> Offer:
    """An offer without the line on how to do it, where that is for CuTe in C++."""
    how = {language: text for language, text in offer.method.how.items() if not _CPP.search(text)}
    return replace(offer, method=replace(offer.method, how=how))


def named(method: str) -> str:
    """A method with what it is, so that it can be recognised in a kernel; the name alone if it is unknown."""
    if method not in shipped():
        return method
    known = shipped().get(method)
    return f"{method} ({known.title.rstrip('.')}: {known.what})"


def offered_in(prompt: str) -> tuple[str, ...]:
    """Ids of the methods that a prompt offers: the lines of `methods.md`."""
    return tuple(_OFFER.findall(prompt))


def chosen(answer: str) -> tuple[str, ...]:
    """Ids of the methods that an answer says it took: its JSON `picks`, or a line `Methods: a, b`."""
    try:
        return tuple(dict.fromkeys(pick.method for pick in select.read_choice(answer).picks))
    except CginsError:
        line = _LINE.search(answer)
        return tuple(dict.fromkeys(_NAME.findall(line[1].lower()))) if line else ()
