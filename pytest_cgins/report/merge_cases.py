"""The cases and builds of several reports, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_cgins.core.errors import MergeError
from pytest_cgins.core.model import Compilation, Evaluation, Reason, SessionReport, Status

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One report, and what messages call it."""

    name: str
    """Of its file."""
    report: SessionReport
    """What it says."""


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
    kind = evaluation.case.device.partition(":")[0]
    models = {environment.device_name for environment in report.environments if environment.device == kind}
    if evaluation.device_name or kind not in several or len(models) != 1:
        return evaluation
    return replace(evaluation, device_name=models.pop())


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
                remedy="merge one report of each case; --cgins-shard and --cgins-device leave a case to one run",
            )
    return [one for _, one in known.values()]
