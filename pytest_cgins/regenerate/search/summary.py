"""What a search came to, from nothing but its journal: `summary.json` and `summary.md` of its target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from statistics import median
from typing import Literal

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import INCUMBENT, Attempt, Result, Target
from pytest_cgins.regenerate.budget import Spent
from pytest_cgins.regenerate.conversation import Role
from pytest_cgins.regenerate.journal.files import write_text
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.methods.classes import MethodClass, Tried
from pytest_cgins.regenerate.profiling import bench
from pytest_cgins.regenerate.run_status import spent_on
from pytest_cgins.regenerate.search import summary_model as model
from pytest_cgins.regenerate.search import summary_text, verifiers
from pytest_cgins.regenerate.search.policy import decided
from pytest_cgins.regenerate.search.retrospective import retrospective
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.report import times
from pytest_cgins.timing.sequential import COVERAGE, median_interval


def headline(target: Target, attempts: Iterable[Attempt]) -> model.Headline | None:
    """Of the accepted one; None if there is none."""
    accepted = next((one for one in attempts if one.outcome == "accepted" and one.trials), None)
    if accepted is None:
        return None
    own = [evaluation for evaluation in accepted.trials[-1].evaluations if is_of(evaluation.case, target)]
    timed = [(one, one.measurement) for one in own if one.measurement is not None]
    cases = tuple(_case(one, measured) for one, measured in timed)
    return model.Headline(
        number=accepted.number,
        cases=cases,
        untimed=tuple(one.case.name for one in own if one.measurement is None),
        means=tuple(_means(timed)),
        share_before=_median(case.share_before for case in cases),
        share_after=_median(case.share_after for case in cases),
        gflops_before=_median(case.gflops_before for case in cases),
        gflops_after=_median(case.gflops_after for case in cases),
    )


def pooled(cases: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Lower end, geometric mean and upper end of ratios, from the logarithms of each case's blocks.

    Each case's interval is so wide that all hold at once with at least the chance of a single one (Boole's inequality);
    then the mean lies between the means of their ends.
    """
    coverage = 1 - (1 - COVERAGE) / len(cases)
    ends = zip(*(median_interval(logs, coverage) for logs in cases), strict=True)
    low, middle, high = (math.exp(math.fsum(end) / len(cases)) for end in ends)
    return low, middle, high


def _case(one: Evaluation, measured: Measurement) -> model.CaseTimes:
    compared = times.comparison(one) is not None
    before = measured.base.median_ns_per_call if compared and measured.base is not None else None
    after = measured.kernel.median_ns_per_call
    share, roofline = times.share_of_peak(measured), measured.roofline
    return model.CaseTimes(
        case=one.case.name,
        before_ns_per_call=before,
        after_ns_per_call=after,
        ratios=tuple(
            ratio
            for against in model.AGAINST
            for ratio in bench.ratios(measured)
            if ratio.against == against and (compared or against != "base")
        ),
        # The same work in another time.
        share_before=None if share is None or before is None else share * after / before,
        share_after=share,
        gflops_before=None if before is None or roofline is None else roofline.gflops(before),
        gflops_after=None if roofline is None else roofline.gflops(after),
    )


def _means(timed: Sequence[tuple[Evaluation, Measurement]]) -> Iterable[model.Mean]:
    for against in model.AGAINST:
        compared = [
            bench.log_ratios(measured, against)
            for one, measured in timed
            if against != "base" or times.comparison(one) is not None
        ]
        if cases := [logs for logs in compared if logs]:
            low, ratio, high = pooled(cases)
            yield model.Mean(against=against, ratio=ratio, low=low, high=high, cases=len(cases))


def _median(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return median(known) if known else None


JSON, MARKDOWN = "summary.json", "summary.md"
CLASSES: tuple[MethodClass, ...] = ("effective", "ineffective", "implementation-failed", "unknown")
"""Those that worked first."""
_ROLES: tuple[Role, ...] = ("generator", "helper", "verifier")


def write(journal: Journal, result: Result, ended: str) -> None:
    """Keep what a search came to beside its result.

    Args:
        journal: of the run; it has all attempts.
        result: what is known of the target.
        ended: why nothing more was asked for, in a line.
    """
    made = _made(journal, result.target, result, ended)
    folder = journal.folder / result.target.name
    journal.write(folder / JSON, made)
    write_text(folder / MARKDOWN, summary_text.page(made).markdown())


def of(journal: Journal, target: Target) -> model.SearchSummary | None:
    """What a search came to, or has come to until now; None for a target that is not searched for.

    Raises:
        JournalError: the journal is damaged.
    """
    if target.goal != "optimise":
        return None
    ended = journal.ended(target)
    kept = journal.read(model.SearchSummary, journal.folder / target.name / JSON)
    if kept is not None and ended is not None and kept.state == ended.state:
        return kept
    return _made(journal, target, ended, ended.why if ended is not None else "")


def _made(journal: Journal, target: Target, result: Result | None, ended: str) -> model.SearchSummary:
    attempts = journal.attempts(target)
    devices = [
        device.device_name
        for attempt in attempts
        for trial in attempt.trials
        for device in trial.environments
    ]
    return model.SearchSummary(
        version=model.SUMMARY_VERSION,
        run=journal.record.id,
        target=target,
        policy=journal.record.policy,
        provider=journal.record.provider,
        device_name=devices[-1] if devices else "",
        state=result.state if result is not None else "under-way",
        ended=" ".join(ended.split()),
        remedy=result.remedy if result is not None else "",
        right=sum(1 for attempt in attempts if attempt.is_right),
        headline=headline(target, attempts),
        rounds=tuple(_rounds(journal.record.policy, attempts)),
        candidates=tuple(_candidate(journal, target, one) for one in attempts),
        drift=tuple(_drift(journal, target, attempts)),
        methods=tuple(sorted(journal.tried(target), key=_worth)),
        ablations=tuple(_ablation(one, attempts) for one in attempts if one.ask.kind == "ablate"),
        verifiers=_verifiers(attempts),
        costs=tuple(_costs(journal, target)),
        retrospective=retrospective(journal, target, attempts),
    )


def _candidate(journal: Journal, target: Target, one: Attempt) -> model.Candidate:
    ask = one.ask
    took = spent_on(journal, target, one.number)
    acceptance = sum(trial.seconds for trial in one.trials if trial.stage == "acceptance")
    return model.Candidate(
        number=one.number,
        round=ask.round,
        branch=ask.branch,
        kind=ask.kind,
        parent=ask.parent,
        model=ask.model,
        temperature=ask.temperature,
        profiled=ask.shows_evidence,
        variant=ask.variant,
        methods=one.methods,
        without=ask.method,
        rank=one.rank,
        outcome=one.outcome,
        reason=one.reason,
        message=one.message.partition("\n")[0],
        time_ratio=one.time_ratio,
        became_champion=one.beats_champion,
        seconds=took.seconds + one.seconds + acceptance,
        prompt_tokens=took.prompt_tokens,
        answer_tokens=took.answer_tokens,
        usd=None if took.unpriced else took.usd,
    )


def _rounds(policy: str, attempts: Sequence[Attempt]) -> Iterator[model.Round]:
    # What is kept in order of numbers is in order of rounds, too: a policy ends one before it begins the next.
    for number, group in groupby(attempts, key=lambda one: one.ask.round):
        members = list(group)
        ratios = [one.time_ratio for one in members if one.time_ratio is not None]
        champions = [one.number for one in members if one.beats_champion]
        yield model.Round(
            number=number,
            decided=decided(policy, [one.ask for one in members]),
            candidates=tuple(one.number for one in members),
            tried=sum(1 for one in members if one.trials),
            right=len(ratios),
            time_ratio=min(ratios, default=None),
            champion=champions[-1] if champions else None,
        )


def _drift(journal: Journal, target: Target, attempts: Sequence[Attempt]) -> Iterator[model.Bottleneck]:
    champions = {INCUMBENT, *(attempt.number for attempt in attempts if attempt.beats_champion)}
    for number in (INCUMBENT, *(attempt.number for attempt in attempts)):
        evidence = journal.evidence(target, number)
        if evidence is None:
            continue
        yield model.Bottleneck(
            number=number,
            was_champion=number in champions,
            case=evidence.case,
            gaps=evidence.gaps,
            largest=evidence.gaps.largest(),
            near_peak=evidence.near_peak,
            degraded=evidence.degraded,
        )


def _worth(one: Tried) -> tuple[int, float, int]:
    return CLASSES.index(one.result), -(one.slowdown_without or 0.0), one.round


def _ablation(one: Attempt, attempts: Sequence[Attempt]) -> model.Ablation:
    low = slowdown = high = None
    parent = next((other for other in attempts if other.number == one.ask.parent), None)
    found = [each for trial in one.trials if trial.stage == "times" for each in trial.evaluations]
    if one.time_ratio is not None and parent is not None and parent.time_ratio is not None:
        slowdown = one.time_ratio / parent.time_ratio
        logs = [
            test.log_ratios
            for each in found
            if each.measurement is not None and (test := each.measurement.against("base")) is not None
        ]
        if logs:
            low, middle, high = pooled(logs)
            # It was timed beside the best one until then. That is whose method was left out, and nobody else.
            if not math.isclose(middle, slowdown, rel_tol=1e-6):
                low = high = None
    slower, failed = any(each.verdict.status is Status.SLOWER for each in found), one.outcome == "failed"
    return model.Ablation(
        number=one.number,
        champion=one.ask.parent,
        method=one.ask.method,
        found=("slower" if slower else "not-proven") if one.is_right else "wrong" if failed else "no-answer",
        slowdown=slowdown,
        low=low,
        high=high,
    )


def _verifiers(attempts: Sequence[Attempt]) -> model.Verifiers | None:
    ranked = sum(1 for attempt in attempts if attempt.rank is not None)
    if not ranked:
        return None
    score = verifiers.score(attempts)
    return model.Verifiers(ranked=ranked, score=score, precision=score.precision, recall=score.recall)


def _costs(journal: Journal, target: Target) -> Iterator[model.Cost]:
    by_role = {role: spent_on(journal, target, role=role) for role in _ROLES}
    spent: dict[Role | Literal["all"], Spent] = {
        role: took for role, took in by_role.items() if took.requests
    }
    told = [field.name for field in fields(model.Cost) if field.name != "role"]
    for role, took in {**spent, "all": spent_on(journal, target)}.items():
        yield model.Cost(role=role, **{name: getattr(took, name) for name in told})
