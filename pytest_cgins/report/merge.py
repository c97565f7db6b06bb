"""Reports of several runs, shards of a suite or types of GPUs, as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_cgins.errors import MergeError
from pytest_cgins.model import MergedRun, SessionReport
from pytest_cgins.report import exit_code
from pytest_cgins.report.merge_cases import Part, joined_cases, joined_compilations
from pytest_cgins.report.redecide import with_tests

ENDED = (exit_code.OK, exit_code.FAILED, exit_code.NOTHING_GATED, exit_code.INFRASTRUCTURE)
"""Exit codes of runs that came to their end."""
T = TypeVar("T")


def merged(parts: Sequence[Part], *, expected: int = 0) -> SessionReport:
    """One report that stands for all.

    A report that is there twice counts once. Times are judged again as tests of one suite.

    Args:
        parts: at least one.
        expected: how many different reports there must be; 0 if nobody knows.

    Raises:
        MergeError: a part is missing or was ended early, the parts were judged differently, cases are there twice, or a
            verdict cannot be decided again.
    """
    distinct = [part for index, part in enumerate(parts) if not _among(part, parts[:index])]
    reports = [part.report for part in distinct]
    _require_all(distinct, expected)
    _require_alike(distinct)
    evaluations = joined_cases(distinct)
    _require_shards(distinct)
    tests, base = suite_tests(reports), _agreed(distinct, "base_revision")
    given = {one.suite_tests for one in reports}
    whole = replace(
        reports[0],
        started_at=min(one.started_at for one in reports),
        seconds=sum(one.seconds for one in reports),
        environments=tuple(sorted(_each(one.environments for one in reports), key=repr)),
        evaluations=tuple(with_tests(one, max(1, tests), base_label=base) for one in evaluations),
        compilations=joined_compilations(distinct),
        missing=_each(one.missing for one in reports),
        stale=_each(one.stale for one in reports),
        base_revision=base,
        empty=all(one.empty for one in reports),
        ci=any(one.ci for one in reports),
        allow_fewer=all(one.allow_fewer for one in reports),
        told_only=all(one.told_only for one in reports),
        coverage_note="; ".join(_each([one.coverage_note] for one in reports if one.coverage_note)),
        suite_tests=given.pop() if len(given) == 1 else 0,
        shard=None,
        merged=tuple(run for one in reports for run in _runs(one)),
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
    for one in reports:
        own = own_tests(one)
        if one.suite_tests:
            given.add(max(one.suite_tests, own))
        elif one.shard is not None:
            by_number[one.shard.number] += own
        else:
            others += own
    return sum(given) + max(by_number.values(), default=0) + others


def own_tests(report: SessionReport) -> int:
    """N by which a run judged its times; 0 if it made no test."""
    timings = [one.measurement for one in report.evaluations if one.measurement is not None]
    return max((test.tests for timing in timings for test in timing.comparisons), default=0)


def _exit_status(whole: SessionReport, reports: Iterable[SessionReport]) -> int:
    """That of a gate over all cases; what failed a run besides its cases, as a test of the user's own, fails this."""
    besides = {one.exit_status for one in reports if one.exit_status != exit_code.of(one)}
    found = exit_code.of(whole)
    if exit_code.FAILED in besides or found == exit_code.FAILED:
        return exit_code.FAILED
    return exit_code.INFRASTRUCTURE if exit_code.INFRASTRUCTURE in besides else found


def _runs(report: SessionReport) -> tuple[MergedRun, ...]:
    run = MergedRun(
        seed=report.seed,
        started_at=report.started_at,
        exit_status=report.exit_status,
        tests=own_tests(report),
        devices=_devices(report),
        shard=report.shard,
    )
    return report.merged or (run,)


def _devices(report: SessionReport) -> tuple[str, ...]:
    return tuple(sorted({one.device_name for one in report.environments}))


def _among(part: Part, others: Iterable[Part]) -> bool:
    return any(part.report == one.report for one in others)


def _each(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """All that is in any group, once, in the order in which it came."""
    return tuple(dict.fromkeys(one for group in groups for one in group))


# ---- what does not add up


def _require_all(parts: Sequence[Part], expected: int) -> None:
    if not parts:
        raise MergeError("there is no report to merge", remedy="name those that --cgins-json wrote")
    for part in parts:
        if part.report.exit_status not in ENDED:
            raise MergeError(
                f"{part.name}: its run was ended with exit code {part.report.exit_status}, and nobody knows which cases it "
                "lacks",
                remedy="run it again",
            )
    there = sum(len(_runs(part.report)) for part in parts)
    if there < expected:
        raise MergeError(
            f"{there} different reports are there, {expected} are expected: {_names(parts)}",
            remedy="find out which job wrote none, and run it again",
        )


def _require_alike(parts: Sequence[Part]) -> None:
    _agreed(parts, "base_revision")
    for name in ("cgins", "strict"):
        values: dict[object, str] = {}
        for part in parts:
            values.setdefault(getattr(part.report, name), part.name)
        if len(values) > 1:
            told = ", ".join(f"{value} in {where}" for value, where in values.items())
            what = "versions of pytest-cgins" if name == "cgins" else "settings of --cgins-strict"
            raise MergeError(
                f"the reports have different {what}: {told}",
                remedy="run all with the same version and options",
            )


def _agreed(parts: Sequence[Part], name: str) -> str:
    """The one revision that all were held against that were held against any."""
    found: dict[str, str] = {}
    for part in parts:
        found.setdefault(getattr(part.report, name), part.name)
    found.pop("", None)
    if len(found) > 1:
        told = ", ".join(f"{value} in {where}" for value, where in found.items())
        raise MergeError(
            f"the reports were held against different revisions: {told}",
            remedy="give all runs the same commit: --cgins-baseline=COMMIT",
        )
    return next(iter(found), "")


def _require_shards(parts: Sequence[Part]) -> None:
    """Refuse a suite of which a numbered part is not there, on any device."""
    numbered = [(part, part.report.shard) for part in parts if part.report.shard is not None]
    counts: dict[int, str] = {}
    for part, shard in numbered:
        counts.setdefault(shard.count, part.name)
    if len(counts) > 1:
        told = ", ".join(f"{count} in {where}" for count, where in counts.items())
        raise MergeError(
            f"the suite was cut into different numbers of shards: {told}", remedy="run all with the same N"
        )
    if not numbered:
        return
    (count,) = counts
    there = {
        number: [part for part, shard in numbered if shard.number == number] for number in range(1, count + 1)
    }
    most = max(there.values(), key=len)
    missing = [
        f"{number} of {count}{_where(found, most)}"
        for number, found in there.items()
        if len(found) < len(most)
    ]
    if missing:
        shards = "shard" if len(missing) == 1 else "shards"
        verb = "is" if len(missing) == 1 else "are"
        raise MergeError(
            f"{shards} {', '.join(missing)} {verb} missing; there are {_names(parts)}",
            remedy=f"run what is missing, with --cgins-shard=I/{count}, and merge all {count * len(most)} reports",
        )


def _where(found: Sequence[Part], most: Sequence[Part]) -> str:
    """On which devices others have a shard that is missing; "" where there is one suite only."""
    if len(most) == 1:
        return ""
    left = Counter(_devices(part.report) for part in most) - Counter(_devices(part.report) for part in found)
    return f" on {' and on '.join(', '.join(devices) or 'an unknown device' for devices in left.elements())}"


def _names(parts: Iterable[Part]) -> str:
    def name(part: Part) -> str:
        shard = part.report.shard
        return part.name if shard is None else f"{part.name} (shard {shard.number} of {shard.count})"

    return ", ".join(map(name, parts))
