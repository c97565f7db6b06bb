"""A summary of a search: its page, and a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pytest_cgins.core.number_text import change, gflops, percent, ratio, speedup, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.budget import Spent
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.methods.definition import AXES, Axis
from pytest_cgins.regenerate.profiling.evidence_documents import Ratio
from pytest_cgins.regenerate.search import summary_model as model
from pytest_cgins.regenerate.search.policy import name_of
from pytest_cgins.regenerate.sections import NOTHING, Page, Section, known, section

ALL_CASES = "geometric mean, median of peaks and rates"
ARMS: dict[model.Against, str] = {"base": "incumbent", "torch": "torch eager", "compile": "torch.compile"}
_RIVALS = ARMS | {"base": "the incumbent"}
_FOUND = {
    "slower": "proven slower without it",
    "not-proven": "not proven slower without it",
    "wrong": "wrong without it",
    "no-answer": "no kernel without it could be tried",
}


_STATES = {
    "accepted": "A faster kernel was accepted",
    "failed": "Nothing was accepted",
    "waiting": "Nothing is accepted yet: it waits",
    "stopped": "Nothing is accepted yet: it was stopped",
    "under-way": "It is under way",
}
_SHORT = {"effective": "worked", "ineffective": "no gain", "implementation-failed": "not built"}


def page(summary: model.SearchSummary) -> Page:
    """All of it; every figure is one of `summary.json`."""
    return Page(
        of=("search", summary.target.name),
        opening=opening(summary),
        facts=_facts(summary),
        sections=sections(summary),
    )


def brief(summary: model.SearchSummary) -> list[tuple[str, str]]:
    """The headline, a line a round, methods, money: pairs of a word and a text that nobody has escaped."""
    best = summary.headline
    came = f"candidate {best.number} accepted" if best is not None else summary.state
    found = [("search", f"{summary.policy}: {came} ({_counts(summary)})")]
    if best is not None:
        found += [("headline", _faster(mean)) for mean in best.means]
        if best.share_after is not None:
            found.append(("peak", _shares(best)))
    found += [(f"round {one.number}", _round(one)) for one in summary.rounds]
    for result in dict.fromkeys(method.result for method in summary.methods):
        named = [_method(method) for method in summary.methods if method.result == result]
        found.append((_SHORT.get(result, result), ", ".join(dict.fromkeys(named))))
    if summary.verifiers is not None:
        found.append(("verifiers", _verifiers(summary.verifiers)))
    found += [("cost", money(cost)) for cost in summary.costs[-1:]]
    return [*found, ("ended", summary.ended)] if summary.ended else found


def _round(one: model.Round) -> str:
    champion = "" if one.champion is None else f", champion {one.champion}"
    if one.time_ratio is None:
        return f"none right: {one.decided}"
    return f"best {ratio(one.time_ratio)} of the incumbent's time{champion}: {one.decided}"


def _method(one: Tried) -> str:
    without = one.slowdown_without
    return one.method if without is None else f"{one.method} ({change(without)} without it)"


def opening(summary: model.SearchSummary) -> str:
    """What came out, in a sentence."""
    best = summary.headline
    if best is None:
        why = f": {summary.ended}" if summary.ended else ""
        return f"{_STATES[summary.state]} ({_counts(summary)}){why}."
    base = next((mean for mean in best.means if mean.against == "base"), None)
    won = "" if base is None else f", {_faster(base)}"
    return f"{_STATES[summary.state]}: {name_of(best.number)}{won} ({_counts(summary)})."


def _facts(summary: model.SearchSummary) -> list[tuple[str, str]]:
    target, best = summary.target, summary.headline
    facts = [
        ("op", target.op),
        ("run", summary.run),
        ("policy", summary.policy),
        ("asked", summary.provider),
        ("device", summary.device_name or "nothing was tried"),
    ]
    if best is not None:
        shared = f"the chance of a false alarm is shared by {counted(summary.right, 'right candidate')}"
        facts.append(("measured", f"once more, in fresh processes, on held-out inputs; {shared}"))
    if best is not None and best.share_after is not None:
        facts.append(("peak", _shares(best)))
    facts.append(("ended", summary.ended or "not known why"))
    return [*facts, ("remedy", summary.remedy)] if summary.remedy else facts


def _counts(summary: model.SearchSummary) -> str:
    return f"{counted(len(summary.candidates), 'candidate')}, {summary.right} right"


def _faster(one: model.Mean) -> str:
    cases = f", geometric mean over {counted(one.cases, 'case')}" if one.cases > 1 else ""
    return f"{speedup(one.ratio)} as fast as {_RIVALS[one.against]} ({ratio(one.low)}..{ratio(one.high)} at 95%{cases})"


def _shares(best: model.Headline) -> str:
    before, after, *rates = (text.replace(NOTHING, "not known") for text in _peaks(best))
    rate = "" if best.gflops_after is None else f"; {rates[0]} before, {rates[1]} after"
    return f"{before} of the device's peak before, {after} after{rate}"


def _verifiers(said: model.Verifiers) -> str:
    shares = [
        f"{name} {'not known' if share is None else percent(share)}"
        for name, share in (("precision", said.precision), ("recall", said.recall))
    ]
    return f"{', '.join(shares)}, {counted(said.ranked, 'candidate')} ranked"


# ---- the tables


def sections(summary: model.SearchSummary) -> tuple[Section, ...]:
    """In the order in which a person reads them."""
    return (
        _before_and_after(summary),
        _retrospective(summary.retrospective),
        _rounds(summary),
        _timeline(summary),
        _drift(summary),
        _methods(summary),
        _ablations(summary),
        _verifier_scores(summary.verifiers),
        _money(summary),
    )


def money(cost: model.Cost) -> str:
    """`41,203 tokens, 0.42 USD`."""
    spent = Spent(usd=cost.usd, unpriced=cost.unpriced)
    return f"{counted(cost.prompt_tokens + cost.answer_tokens, 'token', grouped=True)}, {spent.cost()}"


# ---- before and after


def _before_and_after(summary: model.SearchSummary) -> Section:
    best = summary.headline
    if best is None:
        return Section(title="Before and after", notes=("Nothing was accepted.",))
    rows = [
        (
            one.case, known(one.before_ns_per_call, time_ns), time_ns(one.after_ns_per_call), *_arms(one.ratios),
            *_peaks(one),
        )
        for one in best.cases
    ]  # fmt: skip
    if len(rows) > 1:  # the mean stands below the cases
        rows.append((ALL_CASES, NOTHING, NOTHING, *_arms(best.means), *_peaks(best)))
    against = (f"vs {name} (95%)" for name in ARMS.values())
    return Section(
        title="Before and after",
        columns=(
            "case",
            "before",
            "after",
            *against,
            "peak before",
            "peak after",
            "rate before",
            "rate after",
        ),
        rows=tuple(rows),
        foreign=frozenset({"case"}),
        notes=tuple(f"{name} was not timed" for name in best.untimed),
    )


def _peaks(of: model.CaseTimes | model.Headline) -> list[str]:
    shares, rates = (of.share_before, of.share_after), (of.gflops_before, of.gflops_after)
    return [*(known(share, percent) for share in shares), *(known(rate, gflops) for rate in rates)]


def _arms(arms: Sequence[Ratio | model.Mean]) -> list[str]:
    told = {arm.against: f"{speedup(arm.ratio)} ({ratio(arm.low)}..{ratio(arm.high)})" for arm in arms}
    return [told.get(against, NOTHING) for against in ARMS]


def _retrospective(found: model.Retrospective) -> Section:
    diagnoses = [f"{one.axis} in {one.right} of {one.candidates}" for one in found.diagnoses]
    lost = [f"{count} by {reason}" for reason, count in found.lost.items()]
    told = (
        ("Named for an axis, and proven faster", diagnoses),
        ("Offered, and never named", found.never_named),
        ("Candidates lost", lost),
    )
    notes = tuple(f"{label}: {', '.join(texts)}." for label, texts in told if texts)
    return section(
        "Retrospective",
        found.beliefs,
        {
            "method": lambda one: one.method,
            "axis": lambda one: one.axis or NOTHING,
            "expected by": lambda one: one.expected or NOTHING,
            "candidates": lambda one: ", ".join(map(str, one.candidates)),
            "best time with it": lambda one: known(one.time_ratio, change),
            "came of it": lambda one: one.outcome,
        },
        foreign=("method", "expected by"),
        notes=notes or ("No answer names a method, and no candidate was lost.",),
    )


# ---- what was done


def _rounds(summary: model.SearchSummary) -> Section:
    return section(
        "Rounds",
        summary.rounds,
        {
            "round": lambda one: str(one.number),
            "what the policy asked for": lambda one: one.decided,
            "asked": lambda one: str(len(one.candidates)),
            "tried": lambda one: str(one.tried),
            "right": lambda one: str(one.right),
            "best time / incumbent's": lambda one: known(one.time_ratio, ratio),
            "new champion": lambda one: known(one.champion, str),
        },
        empty="Nothing was asked that has an outcome.",
        foreign=("what the policy asked for",),
    )


def _timeline(summary: model.SearchSummary) -> Section:
    return section(
        "Timeline",
        summary.candidates,
        {
            "candidate": lambda one: str(one.number),
            "round": lambda one: str(one.round),
            "branch": lambda one: str(one.branch),
            "kind": lambda one: f"{one.kind} without {one.without}" if one.without else one.kind,
            "from": lambda one: name_of(one.parent),
            "model": lambda one: one.model or NOTHING,
            "temperature": lambda one: known(one.temperature, "{:g}".format),
            "methods": lambda one: ", ".join(one.methods) or NOTHING,
            "outcome": lambda one: one.outcome,
            "why": _why,
            "time / incumbent's": lambda one: known(one.time_ratio, ratio),
            "champion": lambda one: "yes" if one.became_champion else NOTHING,
            "seconds": lambda one: f"{one.seconds:.1f}",
            "tokens": lambda one: f"{one.prompt_tokens + one.answer_tokens:,}",
            "USD": lambda one: known(one.usd, "{:.4f}".format),
        },
        empty="There were no candidates.",
        foreign=("kind", "model", "methods", "why"),
    )


def _why(one: model.Candidate) -> str:
    told = one.message and one.outcome not in ("right", "accepted")
    return f"{one.reason}: {one.message}" if told else one.reason


def _drift(summary: model.SearchSummary) -> Section:
    notes = dict.fromkeys(f"not available: {line}" for one in summary.drift for line in one.degraded)
    return section(
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
    return section(
        "Methods",
        summary.methods,
        {
            "class": lambda one: one.result,
            "method": lambda one: one.method,
            "machine code": lambda one: one.shown,
            "proven": lambda one: {True: "yes", False: "no", None: "no ablation"}[one.proven],
            "time without it": lambda one: known(one.slowdown_without, change),
            "round": lambda one: str(one.round),
            "note": lambda one: one.note or NOTHING,
        },
        empty=said if named else "No answer names a method.",
        foreign=("method", "note"),
    )


def _ablations(summary: model.SearchSummary) -> Section:
    return section(
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
    return known(one.slowdown, lambda slowdown: f"{change(slowdown)}{between}")


def _verifier_scores(said: model.Verifiers | None) -> Section:
    return section(
        "Verifiers",
        [said] if said is not None else [],
        {
            "ranked": lambda one: str(one.ranked),
            "right, said so": lambda one: str(one.score.right_and_said_so),
            "right, doubted": lambda one: str(one.score.right_and_doubted),
            "wrong, said right": lambda one: str(one.score.wrong_and_said_right),
            "wrong, doubted": lambda one: str(one.score.wrong_and_doubted),
            "precision": lambda one: known(one.precision, percent),
            "recall": lambda one: known(one.recall, percent),
        },
        empty="No candidate was ranked.",
        notes=("Counted over candidates that were tried: those that were put last are not among them.",),
    )


def _money(summary: model.SearchSummary) -> Section:
    return section(
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
