"""Failures by cause: those of one kernel whose verdicts say the same, numbers aside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_cgins.core.model import Compilation, Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.report import summary
from pytest_cgins.report.result import Result

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
        more = counted(len(self.rest), f"more {self.first.kind}")
        return f"the same, numbers aside, in {more}" if self.rest else ""


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
    return (summary.file(failure), *where, verdict.status.value, verdict.reason.value, pattern(message))


def pattern(message: str) -> str:
    """A message without its numbers: `3 of 8 elements are wrong` is what `1 of 8 elements is wrong` is."""
    numberless = _NUMBER.sub("#", _DIGEST.sub("#", _PLACE.sub("", message)))
    return _PLURAL.sub("", _SEVERAL.sub("#", numberless))


def sentence(found: Sequence[Cause]) -> str:
    """How many failures there are and what they come from, one line; "" where nothing failed."""
    if not found:
        return ""
    largest = sorted(found, key=lambda one: -len(one.failures))
    named = [
        f"{len(one.failures):,} {one.first.status.value} ({one.first.source.verdict.reason.value}) "
        f"of {one.first.implementation}"
        for one in largest[:SHOWN]
    ]
    if len(found) > SHOWN:
        named.append(counted(len(found) - SHOWN, "more cause", grouped=True))
    failures = counted(sum(len(one.failures) for one in found), "failure", grouped=True)
    return f"{failures} of {counted(len(found), 'cause', grouped=True)}: {', '.join(named)}"
