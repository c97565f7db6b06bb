"""The offered methods as a prompt says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods.axis_budget import TIES, AxisBudget
from pytest_cgins.regenerate.methods.model import Language
from pytest_cgins.regenerate.methods.select import Offer

ANSWER = '{"picks": [{"method": "ID", "why": "REASON"}], "skipped": {"ID": "REASON"}}'
"""What `validator.read_choice` reads."""


def render(offers: Sequence[Offer], budget: AxisBudget, language: Language, barred: Mapping[str, str]) -> str:
    """A section of a prompt: how many to choose, the offers, what is not to be tried again, and how to answer.

    Args:
        offers: as `select` ranks them.
        budget: methods an axis.
        language: of the kernel.
        barred: methods that are not to be repeated, and why, as `select.not_again` gives them.
    """
    lines = ["## Methods for this round", _rule(budget)]
    if budget.assumed:
        lines.append(
            f"Nothing was measured for {' and '.join(budget.assumed)}: a gap of a half is assumed there, not known."
        )
    for axis in TIES:
        of_axis = [offer for offer in offers if offer.method.axis == axis]
        if of_axis:
            lines += ["", f"### {axis.capitalize()}: at most {budget.of(axis)}"]
            lines += [_offer(offer, language) for offer in of_axis]
    if barred:
        lines += ["", "### Not again", *(f"- `{name}`: {why}" for name, why in sorted(barred.items()))]
    lines += ["", f"Say what you chose in a block of JSON: `{ANSWER}`."]
    return "\n".join(lines)


def _rule(budget: AxisBudget) -> str:
    shares = ", ".join(f"{budget.of(axis)} of {axis}" for axis in TIES if budget.of(axis))
    return (
        f"Choose at most {counted(budget.total, 'method')} ({shares}). Priority 1 comes before 2 and 3: where you leave one out for "
        "another of its axis, say why under skipped. Apply each so that it can be taken out again alone."
    )


def _offer(offer: Offer, language: Language) -> str:
    method = offer.method
    parts = [f"- `{method.id}` (priority {method.priority}) {method.title}. {method.what}"]
    if how := method.how.get(language):
        parts.append(f"  How: {how}")
    for word, texts in (("Needs", method.needs), ("Take care", method.risks), ("Here", offer.why)):
        if texts:
            parts.append(f"  {word}: {'; '.join(texts)}.")
    if method.requires:
        parts.append(f"  Only with {' or '.join(method.requires)}.")
    if method.conflicts:
        parts.append(f"  Not with {', '.join(method.conflicts)}.")
    return "\n".join(parts)
