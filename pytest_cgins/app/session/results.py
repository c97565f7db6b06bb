"""The evaluations and builds of a session, as they come in from this process or from xdist's workers."""

from __future__ import annotations

from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.session.repeats import Repeats
from pytest_cgins.core import documents
from pytest_cgins.core.model import Compilation, Environment, Evaluation, Verdict
from pytest_cgins.report.summary import rank

_PENDING = pytest.StashKey[list[Evaluation]]()
_COMPILATION = pytest.StashKey[Compilation]()
_EXCUSED = pytest.StashKey[bool]()


def keep(item: pytest.Item, file: Path, evaluation: Evaluation) -> None:
    """Have the item's next report carry an evaluation, and its properties go to JUnit XML.

    `file` is the `cgins.yaml` that the case comes from.
    """
    config = relpath(file, item.config.invocation_params.dir)
    item.stash.setdefault(_PENDING, []).append(replace(evaluation, config=config))
    _tell(item, evaluation.verdict)


def pending(item: pytest.Item) -> tuple[Evaluation, ...]:
    """What was kept and is on no report yet."""
    waiting: list[Evaluation] = item.stash.get(_PENDING, [])
    return tuple(waiting)


def keep_compilation(item: pytest.Item, file: Path, compilation: Compilation) -> None:
    """The same for a build."""
    config = relpath(file, item.config.invocation_params.dir)
    item.stash[_COMPILATION] = replace(compilation, config=config)
    _tell(item, compilation.verdict)


def _tell(item: pytest.Item, verdict: Verdict) -> None:
    item.user_properties += [("cgins_status", verdict.status.value), ("cgins_reason", verdict.reason.value)]
    item.user_properties += [(f"cgins_{name}", number) for name, number in verdict.numbers.items()]


def excuse(item: pytest.Item) -> None:
    """Have the failure that comes be no kernel's doing: a tool or a device is not there."""
    item.stash[_EXCUSED] = True


def attach(item: pytest.Item, report: pytest.TestReport, *, own: bool) -> None:
    """Put the item's pending evaluations and excuse on a report, as plain JSON types: xdist sends it so.

    `own` says that the item is a case or a build, whose failure is its verdict, and no test of the user's.
    """
    report.__dict__["cgins_own"] = own
    report.__dict__["cgins_excused"] = item.stash.get(_EXCUSED, False)
    pending = item.stash.get(_PENDING, [])
    if pending:
        report.__dict__["cgins"] = [documents.dump_python(evaluation) for evaluation in pending]
        del item.stash[_PENDING]
    if _COMPILATION in item.stash:
        report.__dict__["cgins_compilation"] = documents.dump_python(item.stash[_COMPILATION])
        del item.stash[_COMPILATION]


class Results:
    """What the reports of a session brought."""

    def __init__(self) -> None:
        self._evaluations: dict[tuple[str, str], Evaluation] = {}
        self._compilations: dict[tuple[str, str], Compilation] = {}
        self._environments: dict[str, Environment] = {}
        self._blameless: set[str] = set()
        self._kernel_failures = 0
        self._infrastructure_failures = 0
        self._case_failures = 0
        self._gated: dict[str, Evaluation | Compilation] = {}
        self._repeats = Repeats()

    def add(self, report: pytest.TestReport) -> None:
        """Take the evaluations from a report, and count whose fault its failure is."""
        sent: list[Any] = report.__dict__.get("cgins", [])
        own = report.__dict__.get("cgins_own", False)
        for value in sent:
            evaluation = documents.load_python(Evaluation, value)
            self._add_evaluation(evaluation)
            if own:
                self._gated[report.nodeid] = evaluation
            if evaluation.verdict.status.outcome == "error":
                self._blameless.add(report.nodeid)
        built = report.__dict__.get("cgins_compilation")
        if built is not None:
            compilation = documents.load_python(Compilation, built)
            self._compilations[compilation.config, compilation.name] = compilation
            if own:
                self._gated[report.nodeid] = compilation
            if compilation.verdict.status.outcome == "error":
                self._blameless.add(report.nodeid)
        if report.__dict__.get("cgins_excused"):
            self._blameless.add(report.nodeid)
        if report.failed:
            if (judged := self._gated.get(report.nodeid)) is not None:
                self._case_failures += 1
                if report.when != "teardown":
                    self._repeats.add(report, judged)
            if report.nodeid in self._blameless:
                self._infrastructure_failures += 1
            else:
                self._kernel_failures += 1

    def _add_evaluation(self, evaluation: Evaluation) -> None:
        # A user's test may evaluate a case that cgins.yaml gates as well: the worse of the two counts.
        key = (evaluation.config, evaluation.case.name)
        known = self._evaluations.get(key)
        if known is None or rank(evaluation.verdict.status) < rank(known.verdict.status):
            self._evaluations[key] = evaluation

    def shorten_repeats(self) -> None:
        """Have pytest's own list show a cause at length once."""
        self._repeats.shorten()

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
    def case_failures(self) -> int:
        """Failures that the verdict of a case or build stands for."""
        return self._case_failures

    @property
    def only_infrastructure_failed(self) -> bool:
        """Whether tests failed, and all of them for a drifted trace or for a tool or device that is not there."""
        return self._infrastructure_failures > 0 and self._kernel_failures == 0
