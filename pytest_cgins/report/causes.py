"""Failures by cause: those of one kernel whose verdicts say the same, numbers aside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pytest_cgins.core.model import Compilation, Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.report import compiled, summary

SHOWN = 3
"""Causes that the sentence names; the list has all."""
_DIGEST = re.compile(r"0x[0-9a-f]+|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b")
_PLACE = re.compile(
    r" (?:(?:Worst|First) is \[.*? Where: |There `[^`]*` is |It is made of a row of ).*?\.(?=\s|$)"
)
"""The worst element, the pattern of the wrong ones in one shape, and the row that they are made of."""
_NUMBER = re.compile(r"[-+±]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?%?|[-+]?\b(?:nan|inf)\b")
_SEVERAL = re.compile(r"#(?:(?:, ?|x|\.\.)#)+|# (?:ns|us|ms|s)\b")
_PLURAL = re.compile(r" (?:is|are|was|were)\b|s\b")

Failure = TypeVar("Failure", Evaluation, Compilation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(Generic[Failure]):
    """Failures that one thing explains."""

    implementation: str
    """`layer_norm/cuda (cuda)`: kernel, implementation, and the device of cases."""
    failures: tuple[Failure, ...]
    """Worst first; at least one."""

    @property
    def first(self) -> Failure:
        """The example that is shown at length."""
        return self.failures[0]

    @property
    def rest(self) -> tuple[Failure, ...]:
        """Those of which a line is enough."""
        return self.failures[1:]

    @property
    def likewise(self) -> str:
        """How many say the same; "" for none."""
        what = "case" if isinstance(self.first, Evaluation) else "build"
        return f"the same, numbers aside, in {counted(len(self.rest), f'more {what}')}" if self.rest else ""


def causes(report: SessionReport) -> tuple[Cause[Evaluation], ...]:
    """Of all cases that fail, those first that have the worst case."""
    several = summary.several_configs(report.evaluations)

    def implementation(one: Evaluation) -> str:
        kernel, name, device = summary.implementation_of(one, several=several)
        return f"{kernel}/{name} ({device})"

    failures = summary.failures(report.evaluations, strict=report.strict)
    groups = _grouped(failures)
    return tuple(Cause(implementation=implementation(group[0]), failures=group) for group in groups)


def build_causes(compilations: Iterable[Compilation]) -> tuple[Cause[Compilation], ...]:
    """The same of builds: what one kernel fails with on several architectures."""
    groups = _grouped(compiled.failures(compilations))
    return tuple(Cause(implementation=group[0].name.rpartition("/")[0], failures=group) for group in groups)


def cause_of(failure: Evaluation | Compilation) -> tuple[str, ...]:
    """Equal for two failures of one cause; the name of a build's architecture is no part of it."""
    verdict, message = failure.verdict, failure.verdict.message
    if isinstance(failure, Compilation):
        where = (failure.kernel, failure.implementation, "")
        message = message.replace(failure.arch, "#")
    else:
        case = failure.case
        where = (case.kernel, case.implementation, failure.device_name or case.device.split(":")[0])
    return (summary.file(failure), *where, verdict.status.value, verdict.reason.value, pattern(message))


def pattern(message: str) -> str:
    """A message without its numbers: `3 of 8 elements are wrong` is what `1 of 8 elements is wrong` is."""
    numberless = _NUMBER.sub("#", _DIGEST.sub("#", _PLACE.sub("", message)))
    return _PLURAL.sub("", _SEVERAL.sub("#", numberless))


def sentence(report: SessionReport) -> str:
    """How many failures there are and what they come from, one line; "" where nothing failed."""
    found: list[Cause[Any]] = [*causes(report), *build_causes(report.compilations)]
    if not found:
        return ""
    largest = sorted(found, key=lambda one: -len(one.failures))
    named = [
        f"{len(one.failures):,} {one.first.verdict.status.value} ({one.first.verdict.reason.value}) "
        f"of {one.implementation}"
        for one in largest[:SHOWN]
    ]
    if len(found) > SHOWN:
        named.append(counted(len(found) - SHOWN, "more cause", grouped=True))
    total = sum(len(one.failures) for one in found)
    failures = counted(total, "failure", grouped=True)
    return f"{failures} of {counted(len(found), 'cause', grouped=True)}: {', '.join(named)}"


def _grouped(failures: Iterable[Failure]) -> list[tuple[Failure, ...]]:
    groups: dict[tuple[str, ...], list[Failure]] = {}
    for failure in failures:
        groups.setdefault(cause_of(failure), []).append(failure)
    return [tuple(group) for group in groups.values()]
