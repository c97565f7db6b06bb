"""The tables of a search's summary, as plain texts that nobody has escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pytest_cgins.core.figures import change, percent, ratio, speedup, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.budget import Spent
from pytest_cgins.regenerate.methods.model import AXES, Axis
from pytest_cgins.regenerate.profiling.model import Ratio
from pytest_cgins.regenerate.search import summary_model as model
from pytest_cgins.regenerate.search.policy import name_of

T = TypeVar("T")

NOTHING = "–"
ALL_CASES = "geometric mean, median of peaks"
ARMS: dict[model.Against, str] = {"base": "incumbent", "torch": "torch eager", "compile": "torch.compile"}
_FOUND = {
    "slower": "proven slower without it",
    "not-proven": "not proven slower without it",
    "wrong": "wrong without it",
    "no-answer": "no kernel without it could be tried",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table, and what is said below it."""

    title: str
    """Our own words."""
    columns: tuple[str, ...] = ()
    """Likewise."""
    rows: tuple[tuple[str, ...], ...] = ()
    """A cell a column."""
    foreign: frozenset[str] = frozenset()
    """Columns whose cells may have anybody's words."""
    notes: tuple[str, ...] = ()
    """Lines that may have anybody's words."""


def sections(summary: model.SearchSummary) -> tuple[Section, ...]:
    """In the order in which a person reads them."""
    return (
        _before_and_after(summary),
        _rounds(summary),
        _timeline(summary),
        _drift(summary),
        _methods(summary),
        _ablations(summary),
        _verifiers(summary.verifiers),
        _money(summary),
    )


def money(cost: model.Cost) -> str:
    """`41,203 tokens, 0.42 USD`."""
    spent = Spent(usd=cost.usd, unpriced=cost.unpriced)
    return f"{counted(cost.prompt_tokens + cost.answer_tokens, 'token', grouped=True)}, {spent.cost()}"


# ---- before and after


def _before_and_after(summary: model.SearchSummary) -> Section:
    best = summary.headline
    # The mean stands below the cases, if there are several.
    rows: list[model.CaseTimes | model.Headline] = (
        [] if best is None else [*best.cases, *[best] * (len(best.cases) > 1)]
    )
    return _table(
        "Before and after",
        rows,
        {
            "case": lambda one: ALL_CASES if isinstance(one, model.Headline) else one.case,
            "before": lambda one: _known(
                None if isinstance(one, model.Headline) else one.before_ns_per_call, time_ns
            ),
            "after": lambda one: (
                NOTHING if isinstance(one, model.Headline) else time_ns(one.after_ns_per_call)
            ),
            **{f"vs {name} (95%)": partial(_faster, against) for against, name in ARMS.items()},
            "peak before": lambda one: _known(one.share_before, percent),
            "peak after": lambda one: _known(one.share_after, percent),
        },
        empty="" if best is not None else "Nothing was accepted.",
        foreign=("case",),
        notes=[f"{name} was not timed" for name in best.untimed] if best is not None else (),
    )


def _faster(against: model.Against, one: model.CaseTimes | model.Headline) -> str:
    arms: Sequence[Ratio | model.Mean] = one.means if isinstance(one, model.Headline) else one.ratios
    arm = next((each for each in arms if each.against == against), None)
    return NOTHING if arm is None else f"{speedup(arm.ratio)} ({ratio(arm.low)}..{ratio(arm.high)})"


# ---- what was done


def _table(
    title: str,
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], str]],
    *,
    empty: str = "",
    foreign: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Section:
    """A row an item; where there is none, what is said instead."""
    if not items:
        return Section(title=title, notes=(empty,) if empty else tuple(notes))
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
    return Section(
        title=title, columns=tuple(columns), rows=rows, foreign=frozenset(foreign), notes=tuple(notes)
    )


def _known(value: float | None, write: Callable[[float], str]) -> str:
    return NOTHING if value is None else write(value)


def _rounds(summary: model.SearchSummary) -> Section:
    return _table(
        "Rounds",
        summary.rounds,
        {
            "round": lambda one: str(one.number),
            "what the policy asked for": lambda one: one.decided,
            "asked": lambda one: str(len(one.candidates)),
            "tried": lambda one: str(one.tried),
            "right": lambda one: str(one.right),
            "best time / incumbent's": lambda one: _known(one.time_ratio, ratio),
            "new champion": lambda one: _known(one.champion, str),
        },
        empty="Nothing was asked that has an outcome.",
        foreign=("what the policy asked for",),
    )


def _timeline(summary: model.SearchSummary) -> Section:
    return _table(
        "Timeline",
        summary.candidates,
        {
            "candidate": lambda one: str(one.number),
            "round": lambda one: str(one.round),
            "branch": lambda one: str(one.branch),
            "kind": lambda one: f"{one.kind} without {one.without}" if one.without else one.kind,
            "from": lambda one: name_of(one.parent),
            "model": lambda one: one.model or NOTHING,
            "temperature": lambda one: _known(one.temperature, "{:g}".format),
            "methods": lambda one: ", ".join(one.methods) or NOTHING,
            "outcome": lambda one: one.outcome,
            "why": _why,
            "time / incumbent's": lambda one: _known(one.time_ratio, ratio),
            "champion": lambda one: "yes" if one.became_champion else NOTHING,
            "seconds": lambda one: f"{one.seconds:.1f}",
            "tokens": lambda one: f"{one.prompt_tokens + one.answer_tokens:,}",
            "USD": lambda one: _known(one.usd, "{:.4f}".format),
        },
        empty="There were no candidates.",
        foreign=("kind", "model", "methods", "why"),
    )


def _why(one: model.Candidate) -> str:
    told = one.message and one.outcome not in ("right", "accepted")
    return f"{one.reason}: {one.message}" if told else one.reason


def _drift(summary: model.SearchSummary) -> Section:
    notes = dict.fromkeys(f"not available: {line}" for one in summary.drift for line in one.degraded)
    return _table(
        "Bottlenecks",
        summary.drift,
        {
            "kernel": lambda one: name_of(one.number),
            "champion": lambda one: "yes" if one.was_champion else NOTHING,
            **{f"{axis} gap": partial(_gap, axis) for axis in AXES},
            "largest": lambda one: one.largest or NOTHING,
            "case": lambda one: one.case,
            "near its peak": lambda one: one.near_peak or NOTHING,
        },
        empty="Nothing was profiled.",
        foreign=("case", "near its peak"),
        notes=("0 is at the peak, 1 at nothing.", *notes),
    )


def _gap(axis: Axis, one: model.Bottleneck) -> str:
    gap = one.gaps.of(axis)
    return "no data" if gap is None else f"{gap:.2f}"


# ---- what came of it


def _methods(summary: model.SearchSummary) -> Section:
    named = {method for candidate in summary.candidates for method in candidate.methods}
    said = f"Answers name {counted(len(named), 'method')}; nobody looked into what worked."
    return _table(
        "Methods",
        summary.methods,
        {
            "class": lambda one: one.result,
            "method": lambda one: one.method,
            "machine code": lambda one: one.shown,
            "proven": lambda one: {True: "yes", False: "no", None: "no ablation"}[one.proven],
            "time without it": lambda one: _known(one.slowdown_without, change),
            "round": lambda one: str(one.round),
            "note": lambda one: one.note or NOTHING,
        },
        empty=said if named else "No answer names a method.",
        foreign=("method", "note"),
    )


def _ablations(summary: model.SearchSummary) -> Section:
    return _table(
        "Ablations",
        summary.ablations,
        {
            "candidate": lambda one: str(one.number),
            "of": lambda one: name_of(one.champion),
            "without": lambda one: one.method,
            "found": lambda one: _FOUND[one.found],
            "time without it (95%)": _slowdown,
        },
        empty="No method was left out of a champion.",
        foreign=("without",),
    )


def _slowdown(one: model.Ablation) -> str:
    between = "" if one.low is None or one.high is None else f" ({change(one.low)}..{change(one.high)})"
    return _known(one.slowdown, lambda slowdown: f"{change(slowdown)}{between}")


def _verifiers(said: model.Verifiers | None) -> Section:
    return _table(
        "Verifiers",
        [said] if said is not None else [],
        {
            "ranked": lambda one: str(one.ranked),
            "right, said so": lambda one: str(one.score.right_and_said_so),
            "right, doubted": lambda one: str(one.score.right_and_doubted),
            "wrong, said right": lambda one: str(one.score.wrong_and_said_right),
            "wrong, doubted": lambda one: str(one.score.wrong_and_doubted),
            "precision": lambda one: _known(one.precision, percent),
            "recall": lambda one: _known(one.recall, percent),
        },
        empty="No candidate was ranked.",
        notes=("Counted over candidates that were tried: those that were put last are not among them.",),
    )


def _money(summary: model.SearchSummary) -> Section:
    return _table(
        "Money",
        summary.costs,
        {
            "role": lambda one: one.role,
            "requests": lambda one: f"{one.requests:,}",
            "tokens asked": lambda one: f"{one.prompt_tokens:,}",
            "tokens answered": lambda one: f"{one.answer_tokens:,}",
            "cost": lambda one: Spent(usd=one.usd, unpriced=one.unpriced).cost(),
            "seconds": lambda one: f"{one.seconds:.1f}",
        },
    )
