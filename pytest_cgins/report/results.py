"""Cases and builds as every format tells them, and failures by cause: those of one kernel whose verdicts say the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_cgins.core.session_report import Compilation, Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import compiled, failure, summary
from pytest_cgins.report.common_traits import CommonTraits, traits_of_case


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One of them."""

    source: Evaluation | Compilation
    name: str
    """What a reader knows it by: behind its `cgins.yaml` where there are several."""
    implementation: str
    """`layer_norm/cuda (cuda)`: kernel, implementation, and the device of cases."""
    outcome: str
    """`pass`, `fail`, `error` or `skip`."""
    command: str
    """Shell command that repeats it."""
    in_common: str = ""
    """What it has in common with its kernel's other failing cases; "" where nothing is known."""

    @property
    def kind(self) -> str:
        """What it is called."""
        return "case" if isinstance(self.source, Evaluation) else "build"

    @property
    def status(self) -> Status:
        """Its verdict's."""
        return self.source.verdict.status

    @property
    def failed(self) -> bool:
        """Whether it fails the session, or ended in an error."""
        return self.outcome in ("fail", "error")

    @property
    def headline(self) -> str:
        """Status, reason, and the first line of the message."""
        return failure.headline(self.source)

    @property
    def message(self) -> str:
        """All that is told of a failure."""
        if isinstance(self.source, Compilation):
            return compiled.message(self.source, command=self.command)
        return failure.message(self.source, command=self.command, in_common=self.in_common)


def cases(report: SessionReport, shared: tuple[CommonTraits, ...]) -> tuple[Result, ...]:
    """All cases: first those that fail, worst first."""
    name = summary.names(report)
    several = summary.several_configs(report.evaluations)

    def result(one: Evaluation) -> Result:
        kernel, implementation, device = summary.implementation_of(one, several=several)
        return Result(
            source=one,
            name=name(one),
            implementation=f"{kernel}/{implementation} ({device})",
            outcome=summary.outcome(one, strict=report.strict),
            command=failure.command(one, report),
            in_common=traits_of_case(shared, one, several=several),
        )

    results = [result(one) for one in summary.worst_first(report.evaluations)]
    return tuple(sorted(results, key=lambda one: not one.failed))


def builds(report: SessionReport) -> tuple[Result, ...]:
    """All builds: first those that fail, worst first."""
    results = [
        Result(
            source=one,
            name=one.name,
            implementation=one.name.rpartition("/")[0],
            outcome=one.verdict.status.outcome,
            command=compiled.command(one),
        )
        for one in compiled.worst_first(report.compilations)
    ]
    return tuple(sorted(results, key=lambda one: not one.failed))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Failures that one thing explains."""

    failures: tuple[Result, ...]
    """Worst first; at least one."""

    @property
    def first(self) -> Result:
        """The example that is shown at length."""
        return self.failures[0]

    @property
    def rest(self) -> tuple[Result, ...]:
        """Those of which a line is enough."""
        return self.failures[1:]

    @property
    def likewise(self) -> str:
        """How many say the same; "" for none."""
        fail = "fails" if len(self.rest) == 1 else "fail"
        return (
            f"{counted(len(self.rest), f'more {self.first.kind}')} {fail} the same way" if self.rest else ""
        )


def causes(results: Iterable[Result]) -> tuple[Cause, ...]:
    """Of those that fail; results and causes are in one order."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        if result.failed:
            groups.setdefault(cause_of(result.source), []).append(result)
    return tuple(Cause(failures=tuple(group)) for group in groups.values())


def cause_of(failure: Evaluation | Compilation) -> tuple[str, ...]:
    """Equal for two failures of one cause; the name of a build's architecture is no part of it."""
    verdict, message = failure.verdict, failure.verdict.message
    if isinstance(failure, Compilation):
        where = (failure.kernel, failure.implementation, "")
        message = message.replace(failure.arch, "#")
    else:
        case = failure.case
        where = (case.kernel, case.implementation, failure.device_name or case.device.split(":")[0])
    # One change slows all cases, each in figures and words of its own.
    said = "" if verdict.status is Status.SLOWER else pattern(message)
    return (summary.file(failure), *where, verdict.status.value, verdict.reason.value, said)


def pattern(message: str) -> str:
    """A message without its numbers: `3 of 8 elements are wrong` is what `1 of 8 elements is wrong` is."""
    numberless = _NUMBER.sub("#", _DIGEST.sub("#", _PLACE.sub("", message)))
    return _PLURAL.sub("", _SEVERAL.sub("#", numberless))


def sentence(found: Sequence[Cause]) -> str:
    """How many failures there are and what they come from, one line; "" where nothing failed."""
    if not found:
        return ""
    kinds: Counter[str] = Counter()
    for cause in found:
        first = cause.first
        kind = f"{first.status.value} ({first.source.verdict.reason.value}) of {first.implementation}"
        kinds[kind] += len(cause.failures)
    named = [f"{number:,} {kind}" for kind, number in kinds.most_common(SHOWN)]
    if len(kinds) > SHOWN:
        named.append(f"{sum(kinds.values()) - sum(n for _, n in kinds.most_common(SHOWN)):,} of other kinds")
    failures = counted(sum(len(one.failures) for one in found), "failure", grouped=True)
    return f"{failures} of {counted(len(found), 'cause', grouped=True)}: {', '.join(named)}"
