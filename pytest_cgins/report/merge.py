"""Reports of several runs, shards of a suite or types of GPUs, as one: each case and build once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_cgins.core import documents
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import MergeError
from pytest_cgins.core.session_report import Compilation, Evaluation, MergedRun, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import exit_code
from pytest_cgins.report.redecide import with_tests
from pytest_cgins.report.summary import device_name

ENDED = (exit_code.OK, exit_code.FAILED, exit_code.NOTHING_GATED, exit_code.INFRASTRUCTURE)
"""Exit codes of runs that came to their end."""
_NO_GPU = "a machine without a GPU"
"""Whose suite a shard is of that left out cases for want of a GPU."""
T = TypeVar("T")


def merged(parts: Sequence[Part], *, expected: int = 0) -> SessionReport:
    """One report that stands for all parts, of which `expected` must be different ones; 0 if nobody knows.

    A report that is there twice counts once. Times are judged again as tests of one suite.

    Raises:
        MergeError: a part is missing or was ended early, the parts were judged differently, cases or runs are there twice,
            or a verdict cannot be decided again.
    """
    all_reports = [part.report for part in parts]
    distinct = [part for index, part in enumerate(parts) if part.report not in all_reports[:index]]
    reports = [part.report for part in distinct]
    _require_ended(distinct)
    runs = _all_runs(distinct, expected)
    _require_alike(distinct)
    evaluations = joined_cases(distinct)
    _require_shards(distinct)
    tests, base = suite_tests(reports), _agreed_base(distinct)
    given = {report.suite_tests for report in reports}
    whole = replace(
        reports[0],
        started_at=min(report.started_at for report in reports),
        seconds=sum(report.seconds for report in reports),
        environments=tuple(sorted(_each(report.environments for report in reports), key=repr)),
        evaluations=tuple(
            with_tests(evaluation, max(1, tests), base_label=base) for evaluation in evaluations
        ),
        compilations=joined_compilations(distinct),
        missing=_each(report.missing for report in reports),
        stale=_each(report.stale for report in reports),
        base_revision=base,
        empty=all(report.empty for report in reports),
        ci=any(report.ci for report in reports),
        allow_fewer=all(report.allow_fewer for report in reports),
        weaker=_each(report.weaker for report in reports),
        allow_weaker=all(report.allow_weaker for report in reports),
        unread=any(report.unread for report in reports),
        told_only=all(report.told_only for report in reports),
        coverage_note="; ".join(_each([report.coverage_note] for report in reports if report.coverage_note)),
        suite_tests=given.pop() if len(given) == 1 else 0,
        shard=None,
        merged=runs,
        other_failures=sum(report.other_failures for report in reports),
    )
    return replace(whole, exit_status=_exit_status(whole, reports))


def suite_tests(reports: Iterable[SessionReport]) -> int:
    """N of all runs together: runs of one suite share it, other suites add theirs; 0 if no time was tested.

    Runs with the same `--cgins-suite-tests` are one suite. So are the numbered shards of one device, each of which
    counted the whole suite; those of several devices are as many suites as reports have the same number.
    """
    given: set[int] = set()
    by_number: Counter[int] = Counter()
    others = 0
    for report in reports:
        own = own_tests(report)
        if report.suite_tests:
            given.add(max(report.suite_tests, own))
        elif report.shard is not None:
            by_number[report.shard.number] += own
        else:
            others += own
    return sum(given) + max(by_number.values(), default=0) + others


def own_tests(report: SessionReport) -> int:
    """N by which a run judged its times; 0 if it made no test."""
    timings = [
        evaluation.measurement for evaluation in report.evaluations if evaluation.measurement is not None
    ]
    return max((test.tests for timing in timings for test in timing.comparisons), default=0)


def lost_device(report: SessionReport) -> bool:
    """Whether a run in CI gated nothing because the device of its cases was not there; a run without cases lost none."""
    return report.exit_status == exit_code.NOTHING_GATED and any(map(absent, report.evaluations))


def _exit_status(whole: SessionReport, reports: Iterable[SessionReport]) -> int:
    """That of a gate over all cases; what failed a run besides its cases, as a test of the user's own, fails this.

    A verdict that is decided again explains the run's exit code no more, and takes nothing else with it.
    """
    besides = {exit_code.of(whole)}
    for report in reports:
        if report.exit_status != exit_code.of(report) or report.other_failures or lost_device(report):
            besides.add(report.exit_status)
    order = (exit_code.FAILED, exit_code.INFRASTRUCTURE, exit_code.NOTHING_GATED)
    return next((code for code in order if code in besides), exit_code.OK)


def _runs(report: SessionReport) -> tuple[MergedRun, ...]:
    if report.merged:
        return report.merged
    run = MergedRun(
        seed=report.seed,
        started_at=report.started_at,
        exit_status=report.exit_status,
        tests=own_tests(report),
        devices=tuple(sorted({environment.device_name for environment in report.environments})),
        shard=report.shard,
        digest=hashlib.sha256(documents.dump(report).encode()).hexdigest(),
    )
    return (run,)


def _each(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """All that is in any group, once, in the order in which it came."""
    return tuple(dict.fromkeys(one for group in groups for one in group))


# ---- what does not add up


def _require_ended(parts: Sequence[Part]) -> None:
    if not parts:
        raise MergeError("there is no report to merge", remedy="name those that --cgins-json wrote")
    for part in parts:
        if part.report.exit_status not in ENDED:
            raise MergeError(
                f"{part.name}: its run was ended with exit code {part.report.exit_status}, so it is unknown which cases it "
                "lacks",
                remedy="run it again",
            )
        if part.report.stopped:
            raise MergeError(
                f"{part.name}: its run was stopped by -x or --maxfail, so it is unknown which cases it lacks",
                remedy="run it again without them",
            )


def _all_runs(parts: Sequence[Part], expected: int) -> tuple[MergedRun, ...]:
    """Each run once, with those that merged reports are made of.

    Two reports that share some runs, and neither all of the other's, are left to what their cases say.
    """
    runs = [_runs(part.report) for part in parts]
    for part, own in zip(parts, runs, strict=True):
        for other, others in zip(parts, runs, strict=True):
            if part is not other and set(own) <= set(others):
                what = "its run is" if len(own) == 1 else "all its runs are"
                raise MergeError(
                    f"{part.name}: {what} in {other.name} too", remedy="leave one of the two reports out"
                )
    found = _each(runs)
    if len(found) < expected:
        raise MergeError(
            f"{counted(len(found), 'different report')} instead of {expected}: {_names(parts)}",
            remedy="find the job that wrote no report, and run it again",
        )
    return found


def _require_alike(parts: Sequence[Part]) -> None:
    _agreed_base(parts)
    for name in ("cgins", "strict"):
        what = "versions of pytest-cgins" if name == "cgins" else "settings of --cgins-strict"
        _one_value(
            ((getattr(part.report, name), part.name) for part in parts),
            f"the reports have different {what}",
            remedy="run all with the same version and options",
        )


def _one_value(named: Iterable[tuple[object, str]], complaint: str, *, remedy: str) -> object:
    """What all parts have; None without one. Given with the name of each part."""
    values: dict[object, str] = {}
    for value, name in named:
        values.setdefault(value, name)
    if len(values) > 1:
        told = ", ".join(f"{value} in {where}" for value, where in values.items())
        raise MergeError(f"{complaint}: {told}", remedy=remedy)
    return next(iter(values), None)


def _agreed_base(parts: Sequence[Part]) -> str:
    """The base revision of all reports that have one."""
    agreed = _one_value(
        ((base, part.name) for part in parts if (base := part.report.base_revision)),
        "the reports were compared with different revisions",
        remedy="give all runs the same commit: --cgins-baseline=COMMIT",
    )
    return str(agreed or "")


def _require_shards(parts: Sequence[Part]) -> None:
    """Refuse a suite of which a numbered part is not there, on any model of GPU.

    Each model has all numbers. A part that wanted no GPU and names none, as one of CPU cases or one without cases, may
    be of any model's suite.
    """
    numbered = [(part, part.report.shard) for part in parts if part.report.shard is not None]
    _one_value(
        ((shard.count, part.name) for part, shard in numbered),
        "the suite was cut into different numbers of shards",
        remedy="run all with the same N",
    )
    _one_value(
        ((shard.durations, part.name) for part, shard in numbered),
        "the suite was cut by different durations, so that a case may be in no shard",
        remedy="run all with the same --cgins-durations",
    )
    if not numbered:
        return
    count = numbered[0][1].count
    suites: dict[str, Counter[int]] = {}
    anywhere: Counter[int] = Counter()
    for part, shard in numbered:
        where = _gpu(part.report)
        (suites.setdefault(where, Counter()) if where else anywhere)[shard.number] += 1
    lacking = {
        number: [where for where, found in suites.items() for _ in range(max(found.values()) - found[number])]
        for number in range(1, count + 1)
    }
    spare = {number: anywhere[number] - len(gaps) for number, gaps in lacking.items()}
    others = max(0, *spare.values())
    wanted = sum(max(suite.values()) for suite in suites.values()) + others
    missing = [
        f"{number} of {count}{_where(gaps, anywhere[number]) if wanted > 1 else ''}"
        for number, gaps in lacking.items()
        if spare[number] < others
    ]
    if missing:
        shards = "shard" if len(missing) == 1 else "shards"
        verb = "is" if len(missing) == 1 else "are"
        raise MergeError(
            f"{shards} {', '.join(missing)} {verb} missing; there are {_names(parts)}",
            remedy=f"run what is missing, with --cgins-shard=I/{count}, and merge all {counted(count * wanted, 'report')}",
        )


def _gpu(report: SessionReport) -> str:
    """Whose suite a numbered part is of: the model of its GPU; "" if it may be of any.

    One that left out cases for want of a GPU stands for none. One that lost its GPU does: its exit code tells.
    """
    models = sorted(
        {
            environment.device_name
            for environment in report.environments
            if device_of(environment.device).is_accelerator
        }
    )
    if models or lost_device(report):
        return ", ".join(models)
    return _NO_GPU if any(map(absent, report.evaluations)) else ""


def _where(gaps: Sequence[str], fillers: int) -> str:
    """On which GPUs a shard is missing; "" if nobody knows. Some parts without a GPU may fill some of the gaps."""
    if len(gaps) <= fillers:
        return ""
    return f" on {(' or on ' if fillers else ' and on ').join(gaps)}"


def _names(parts: Iterable[Part]) -> str:
    def name(part: Part) -> str:
        shard = part.report.shard
        return part.name if shard is None else f"{part.name} (shard {shard.number} of {shard.count})"

    return ", ".join(map(name, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One report, and what messages call it."""

    name: str
    report: SessionReport


def joined_cases(parts: Sequence[Part]) -> tuple[Evaluation, ...]:
    """Ordered by label; a case that ran on several models of a device type is there once for each.

    A case that was skipped for want of its device is left out where another report has it.

    Raises:
        MergeError: two reports have a case, on the same model of device, and do not say the same of it.
    """
    several = _several(part.report for part in parts)
    named = [
        (part.name, _on_device(evaluation, part.report, several))
        for part in parts
        for evaluation in part.report.evaluations
    ]
    ran = {_place(one) for _, one in named if not absent(one)}
    left = [(name, one) for name, one in named if not (absent(one) and _place(one) in ran)]
    found = _each_once(
        left, key=lambda one: (*_place(one), one.device_name), plain=_said, label=lambda one: one.label
    )
    return tuple(sorted(found, key=lambda one: one.label))


def joined_compilations(parts: Iterable[Part]) -> tuple[Compilation, ...]:
    """Ordered by name.

    Raises:
        MergeError: two reports have a build and do not say the same of it.
    """
    named = [(part.name, compilation) for part in parts for compilation in part.report.compilations]
    found = _each_once(
        named,
        key=lambda one: (one.config, one.name),
        plain=lambda one: replace(one, seconds=0.0, build_seconds=0.0),
        label=lambda one: one.name,
    )
    return tuple(sorted(found, key=lambda one: one.name))


def _several(reports: Iterable[SessionReport]) -> set[str]:
    """Types of devices of which the reports have more than one model."""
    models: dict[str, set[str]] = {}
    for report in reports:
        for environment in report.environments:
            models.setdefault(environment.device, set()).add(environment.device_name)
    return {device for device, names in models.items() if len(names) > 1}


def _on_device(evaluation: Evaluation, report: SessionReport, several: set[str]) -> Evaluation:
    if evaluation.case.device.partition(":")[0] not in several:
        return evaluation
    return replace(evaluation, device_name=device_name(evaluation, report))


def _place(evaluation: Evaluation) -> tuple[str, str]:
    return evaluation.config, evaluation.case.name


def absent(evaluation: Evaluation) -> bool:
    """Whether it was skipped for want of its device."""
    verdict = evaluation.verdict
    return (verdict.status, verdict.reason) == (Status.SKIPPED, Reason.DEVICE_ABSENT)


def _said(evaluation: Evaluation) -> Evaluation:
    """What two reports must agree on; of a case that never ran not even its wall time is a finding."""
    if evaluation.correctness is not None or evaluation.measurement is not None:
        return evaluation
    return replace(evaluation, seconds=0.0, build_seconds=0.0, output="", tested=None)


def _each_once(
    named: Iterable[tuple[str, T]],
    *,
    key: Callable[[T], tuple[str, ...]],
    plain: Callable[[T], T],
    label: Callable[[T], str],
) -> list[T]:
    known: dict[tuple[str, ...], tuple[str, T]] = {}
    for name, one in named:
        first, other = known.setdefault(key(one), (name, one))
        if plain(one) != plain(other):
            raise MergeError(
                f"{label(one)} is in {first} and in {name}, with different results",
                remedy="merge one report of each case; with --cgins-shard or --cgins-device each case is in one run only",
            )
    return [one for _, one in known.values()]
