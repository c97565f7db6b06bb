"""The tables of a search's summary, as plain texts that nobody has escaped."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.core.figures import change, percent, ratio, speedup, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods.model import AXES
from pytest_cgins.regenerate.profiling.model import Ratio
from pytest_cgins.regenerate.search.decided import name_of
from pytest_cgins.regenerate.search.summary_model import (
    AGAINST,
    Ablation,
    Against,
    Bottleneck,
    Candidate,
    CaseTimes,
    Cost,
    Headline,
    Mean,
    SearchSummary,
    Verifiers,
)
from pytest_cgins.regenerate.spending import Spent

NOTHING = "–"
ALL_CASES = "geometric mean, median of peaks"
ARMS: dict[Against, str] = {"base": "incumbent", "torch": "torch eager", "compile": "torch.compile"}
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


def sections(summary: SearchSummary) -> tuple[Section, ...]:
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


def money(cost: Cost) -> str:
    """`41,203 tokens, 0.42 USD`."""
    spent = Spent(usd=cost.usd, unpriced=cost.unpriced)
    return f"{counted(cost.prompt_tokens + cost.answer_tokens, 'token', grouped=True)}, {spent.cost()}"


# ---- before and after


def _before_and_after(summary: SearchSummary) -> Section:
    best = summary.headline
    if best is None:
        return Section(title="Before and after", notes=("Nothing was accepted.",))
    columns = (
        "case",
        "before",
        "after",
        *(f"vs {ARMS[one]} (95%)" for one in AGAINST),
        "peak before",
        "peak after",
    )
    rows = [_case(one) for one in best.cases]
    if len(rows) > 1:
        rows.append(_mean_row(best))
    return Section(
        title="Before and after",
        columns=columns,
        rows=tuple(rows),
        foreign=frozenset({"case"}),
        notes=tuple(f"{name} was not timed" for name in best.untimed),
    )


def _case(one: CaseTimes) -> tuple[str, ...]:
    found = {each.against: each for each in one.ratios}
    return (
        one.case,
        NOTHING if one.before_ns_per_call is None else time_ns(one.before_ns_per_call),
        time_ns(one.after_ns_per_call),
        *(_faster(found.get(against)) for against in AGAINST),
        _share(one.share_before),
        _share(one.share_after),
    )


def _mean_row(best: Headline) -> tuple[str, ...]:
    found = {one.against: one for one in best.means}
    ratios = [_faster(found.get(against)) for against in AGAINST]
    return (ALL_CASES, NOTHING, NOTHING, *ratios, _share(best.share_before), _share(best.share_after))


def _faster(one: Ratio | Mean | None) -> str:
    return NOTHING if one is None else f"{speedup(one.ratio)} ({ratio(one.low)}..{ratio(one.high)})"


def _share(share: float | None) -> str:
    return NOTHING if share is None else percent(share)


# ---- what was done


def _rounds(summary: SearchSummary) -> Section:
    if not summary.rounds:
        return Section(title="Rounds", notes=("Nothing was asked that has an outcome.",))
    rows = tuple(
        (
            str(one.number),
            one.decided,
            str(len(one.candidates)),
            str(one.tried),
            str(one.right),
            NOTHING if one.time_ratio is None else ratio(one.time_ratio),
            NOTHING if one.champion is None else str(one.champion),
        )
        for one in summary.rounds
    )
    columns = (
        "round",
        "what the policy asked for",
        "asked",
        "tried",
        "right",
        "best time / incumbent's",
        "new champion",
    )
    return Section(title="Rounds", columns=columns, rows=rows, foreign=frozenset({columns[1]}))


def _timeline(summary: SearchSummary) -> Section:
    if not summary.candidates:
        return Section(title="Timeline", notes=("There were no candidates.",))
    columns = (
        "candidate", "round", "branch", "kind", "from", "model", "temperature", "methods", "outcome", "why",
        "time / incumbent's", "champion", "seconds", "tokens", "USD",
    )  # fmt: skip
    return Section(
        title="Timeline",
        columns=columns,
        rows=tuple(_candidate(one) for one in summary.candidates),
        foreign=frozenset({"kind", "model", "methods", "why"}),
    )


def _candidate(one: Candidate) -> tuple[str, ...]:
    told = one.message and one.outcome not in ("right", "accepted")
    why = f"{one.reason}: {one.message}" if told else one.reason
    return (
        str(one.number),
        str(one.round),
        str(one.branch),
        f"{one.kind} without {one.without}" if one.without else one.kind,
        name_of(one.parent),
        one.model or NOTHING,
        NOTHING if one.temperature is None else f"{one.temperature:g}",
        ", ".join(one.methods) or NOTHING,
        one.outcome,
        why,
        NOTHING if one.time_ratio is None else ratio(one.time_ratio),
        "yes" if one.became_champion else NOTHING,
        f"{one.seconds:.1f}",
        f"{one.prompt_tokens + one.answer_tokens:,}",
        NOTHING if one.usd is None else f"{one.usd:.4f}",
    )


def _drift(summary: SearchSummary) -> Section:
    if not summary.drift:
        return Section(title="Bottlenecks", notes=("Nothing was profiled.",))
    columns = ("kernel", "champion", *(f"{axis} gap" for axis in AXES), "largest", "case", "near its peak")
    notes = dict.fromkeys(f"not available: {line}" for one in summary.drift for line in one.degraded)
    return Section(
        title="Bottlenecks",
        columns=columns,
        rows=tuple(_bottleneck(one) for one in summary.drift),
        foreign=frozenset({"case", "near its peak"}),
        notes=("0 is at the peak, 1 at nothing.", *notes),
    )


def _bottleneck(one: Bottleneck) -> tuple[str, ...]:
    gaps = [one.gaps.of(axis) for axis in AXES]
    return (
        name_of(one.number),
        "yes" if one.was_champion else NOTHING,
        *("no data" if gap is None else f"{gap:.2f}" for gap in gaps),
        one.largest or NOTHING,
        one.case,
        one.near_peak or NOTHING,
    )


# ---- what came of it


def _methods(summary: SearchSummary) -> Section:
    if not summary.methods:
        named = {method for one in summary.candidates for method in one.methods}
        said = f"Answers name {counted(len(named), 'method')}; nobody looked into what worked."
        return Section(title="Methods", notes=(said if named else "No answer names a method.",))
    columns = ("class", "method", "machine code", "proven", "time without it", "round", "note")
    rows = tuple(
        (
            one.result,
            one.method,
            one.shown,
            {True: "yes", False: "no", None: "no ablation"}[one.proven],
            NOTHING if one.slowdown_without is None else change(one.slowdown_without),
            str(one.round),
            one.note or NOTHING,
        )
        for one in summary.methods
    )
    return Section(title="Methods", columns=columns, rows=rows, foreign=frozenset({"method", "note"}))


def _ablations(summary: SearchSummary) -> Section:
    if not summary.ablations:
        return Section(title="Ablations", notes=("No method was left out of a champion.",))
    columns = ("candidate", "of", "without", "found", "time without it (95%)")
    rows = tuple(
        (str(one.number), name_of(one.champion), one.method, _FOUND[one.found], _slowdown(one))
        for one in summary.ablations
    )
    return Section(title="Ablations", columns=columns, rows=rows, foreign=frozenset({"without"}))


def _slowdown(one: Ablation) -> str:
    if one.slowdown is None:
        return NOTHING
    between = "" if one.low is None or one.high is None else f" ({change(one.low)}..{change(one.high)})"
    return f"{change(one.slowdown)}{between}"


def _verifiers(said: Verifiers | None) -> Section:
    if said is None:
        return Section(title="Verifiers", notes=("No candidate was ranked.",))
    score = said.score
    columns = (
        "ranked",
        "right, said so",
        "right, doubted",
        "wrong, said right",
        "wrong, doubted",
        "precision",
        "recall",
    )
    row = (
        str(said.ranked),
        str(score.right_and_said_so),
        str(score.right_and_doubted),
        str(score.wrong_and_said_right),
        str(score.wrong_and_doubted),
        _share(said.precision),
        _share(said.recall),
    )
    notes = ("Counted over candidates that were tried: those that were put last are not among them.",)
    return Section(title="Verifiers", columns=columns, rows=(row,), notes=notes)


def _money(summary: SearchSummary) -> Section:
    columns = ("role", "requests", "tokens asked", "tokens answered", "cost", "seconds")
    rows = tuple(
        (
            one.role,
            f"{one.requests:,}",
            f"{one.prompt_tokens:,}",
            f"{one.answer_tokens:,}",
            Spent(usd=one.usd, unpriced=one.unpriced).cost(),
            f"{one.seconds:.1f}",
        )
        for one in summary.costs
    )
    return Section(title="Money", columns=columns, rows=rows)
