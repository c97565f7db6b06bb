"""A case or a build as every format tells it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.core.model import Compilation, Evaluation, SessionReport, Status
from pytest_cgins.report import compiled, failure, in_common, summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One of them."""

    source: Evaluation | Compilation
    """What is known of it."""
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


def cases(report: SessionReport, shared: tuple[in_common.InCommon, ...]) -> tuple[Result, ...]:
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
            in_common=in_common.of_case(shared, one, report),
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
