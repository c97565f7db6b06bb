"""The evaluations and builds of a session, as they come in from this process or from xdist's workers; causes that repeat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import Compilation, Environment, Evaluation
from pytest_cgins.report import escape
from pytest_cgins.report.failure import headline
from pytest_cgins.report.results import cause_of
from pytest_cgins.report.summary import rank

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter


_PENDING = pytest.StashKey[list[Evaluation | Compilation]]()
_EXCUSED = pytest.StashKey[bool]()
_SENT: dict[str, type[Evaluation | Compilation]] = {"cgins": Evaluation, "cgins_builds": Compilation}
"""What a report carries of each kind, by its attribute."""


def keep(item: pytest.Item, file: Path, result: Evaluation | Compilation) -> None:
    """Have the item's next report carry an evaluation or a build, and its properties go to JUnit XML.

    `file` is the `cgins.yaml` that the case or build comes from.
    """
    config, verdict = relpath(file, item.config.invocation_params.dir), result.verdict
    item.stash.setdefault(_PENDING, []).append(replace(result, config=config))
    item.user_properties += [("cgins_status", verdict.status.value), ("cgins_reason", verdict.reason.value)]
    item.user_properties += [(f"cgins_{name}", number) for name, number in verdict.numbers.items()]
    if isinstance(result, Evaluation) and result.stored is not None:
        item.user_properties.append(("cgins_stored", str(result.stored)))
        item.add_report_section("setup", "cgins", f"not run again: {result.stored}")


def pending(item: pytest.Item) -> tuple[Evaluation, ...]:
    """The evaluations that were kept and are on no report yet."""
    return tuple(result for result in item.stash.get(_PENDING, []) if isinstance(result, Evaluation))


def excuse(item: pytest.Item) -> None:
    """Have the failure that comes be no kernel's doing: a tool or a device is not there."""
    item.stash[_EXCUSED] = True


def attach(item: pytest.Item, report: pytest.TestReport, *, own: bool) -> None:
    """Put the item's pending evaluations and excuse on a report; `serialized` has them as plain JSON types for xdist.

    `own` says that the item is a case or a build, whose failure is its verdict, and no test of the user's.
    """
    report.__dict__["cgins_own"] = own
    report.__dict__["cgins_excused"] = item.stash.get(_EXCUSED, False)
    results = item.stash.get(_PENDING, [])
    for name, kind in _SENT.items():
        report.__dict__[name] = [one for one in results if isinstance(one, kind)]
    results.clear()


def serialized(data: dict[str, Any]) -> dict[str, Any]:
    """A report as it is sent to another process, with plain JSON types."""
    return data | {name: [documents.dump_python(one) for one in data[name]] for name in _SENT if name in data}


class Results:
    """What the reports of a session brought."""

    def __init__(self) -> None:
        self._evaluations: dict[tuple[str, str], Evaluation] = {}
        self._compilations: dict[tuple[str, str], Compilation] = {}
        self._environments: dict[str, Environment] = {}
        self._blameless: set[str] = set()
        self._kernel_failures = self._infrastructure_failures = 0
        self.case_failures = 0
        """Failures that the verdict of a case or build stands for."""
        self._gated: dict[str, Evaluation | Compilation] = {}
        self._first_of_cause: dict[tuple[str, ...], str] = {}
        self._repeats: list[tuple[pytest.TestReport, str]] = []

    def add(self, report: pytest.TestReport) -> list[Evaluation]:
        """Take the evaluations from a report, and count whose fault its failure is."""
        added = []
        for name, kind in _SENT.items():
            for value in report.__dict__.get(name, []):
                result = value if isinstance(value, kind) else documents.load_python(kind, value)
                self._add_result(result)
                added += [result] if isinstance(result, Evaluation) else []
                if report.__dict__.get("cgins_own", False):
                    self._gated[report.nodeid] = result
                if result.verdict.status.outcome == "error":
                    self._blameless.add(report.nodeid)
        if report.__dict__.get("cgins_excused"):
            self._blameless.add(report.nodeid)
        if report.failed:
            self._count_failure(report)
        return added

    def _count_failure(self, report: pytest.TestReport) -> None:
        if (judged := self._gated.get(report.nodeid)) is not None:
            self.case_failures += 1
            if report.when != "teardown":
                first = self._first_of_cause.setdefault(cause_of(judged), report.nodeid)
                if first != report.nodeid:
                    self._repeats.append((report, f"{headline(judged)} [same failure as {first}]"))
        if report.nodeid in self._blameless:
            self._infrastructure_failures += 1
        else:
            self._kernel_failures += 1

    def _add_result(self, result: Evaluation | Compilation) -> None:
        if isinstance(result, Compilation):
            self._compilations[result.config, result.name] = result
            return
        # A user's test may evaluate a case that cgins.yaml gates as well: the worse of the two counts.
        known = self._evaluations.get((result.config, result.case.name))
        if known is None or rank(result.verdict.status) < rank(known.verdict.status):
            self._evaluations[result.config, result.case.name] = result

    def shorten_repeats(self) -> None:
        """Have pytest's own list show a cause at length once; what its plugins write has been told before."""
        for report, line in self._repeats:
            crash: Any = getattr(report.longrepr, "reprcrash", None)
            text = escape.lines(line)
            if crash is not None:
                crash = type(crash)(path=crash.path, lineno=crash.lineno, message=text)
            report.longrepr = _Repeat(text, crash)  # type: ignore[assignment]

    def add_environments(self, environments: tuple[Environment, ...]) -> None:
        """Take what a process ran on; a device that is known already is not taken twice."""
        for environment in environments:
            self._environments.setdefault(environment.device, environment)

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Ordered by case name."""
        return tuple(sorted(self._evaluations.values(), key=lambda evaluation: evaluation.case.name))

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """Ordered by name."""
        return tuple(sorted(self._compilations.values(), key=lambda compilation: compilation.name))

    @property
    def environments(self) -> tuple[Environment, ...]:
        """Ordered by device."""
        return tuple(self._environments[device] for device in sorted(self._environments))

    @property
    def only_infrastructure_failed(self) -> bool:
        """Whether tests failed, and all of them for a drifted trace or for a tool or device that is not there."""
        return self._infrastructure_failures > 0 and self._kernel_failures == 0


@dataclass(slots=True)
class _Repeat:
    """Stands for the message of a failure that repeats a cause: one line, which names the case that has it at length."""

    text: str
    reprcrash: Any
    """Where it was raised, with the text: the short summary has that, and `--tb=line`."""

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: TerminalWriter) -> None:
        """Write it."""
        writer.line(self.text)
