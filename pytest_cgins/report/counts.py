"""How many cases and builds of a report ended how."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from pytest_cgins.core.model import SessionReport, Status
from pytest_cgins.report import summary

_REGRESSED = (Status.SLOWER, Status.BELOW_FLOOR, Status.RESOURCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Cases and builds of a report by outcome: `total` is the sum of passed, failed, errors and skipped ones."""

    total: int
    """All of them."""
    passed: int
    """Those that pytest passes: `WEAK` and `INCONCLUSIVE` ones too, unless they were made to fail."""
    failed: int
    """Those that a kernel failed."""
    regressed: int
    """Failed ones whose time or resources did it: `SLOWER`, `BELOW_FLOOR`, `RESOURCES`."""
    errors: int
    """`TRACE_DRIFT` and `INFRASTRUCTURE`."""
    skipped: int
    """Those that nothing gated."""
    weak: int
    """`WEAK` ones, whether they passed or failed."""
    verdict: str
    """Worst status of all; "" if there is none."""

    def lines(self) -> str:
        """`name=number` a line, as scripts read it."""
        return "".join(f"{name}={number}\n" for name, number in asdict(self).items())


def counts(report: SessionReport) -> Counts:
    """Count; under `--cgins-strict` a `WEAK` case failed."""
    outcomes: Counter[str] = Counter(
        summary.outcome(evaluation, strict=report.strict) for evaluation in report.evaluations
    )
    outcomes.update(compilation.verdict.status.outcome for compilation in report.compilations)
    builds = [compilation.verdict.status for compilation in report.compilations]
    statuses = [*(evaluation.verdict.status for evaluation in report.evaluations), *builds]
    failed = [
        failure.verdict.status for failure in summary.failures(report.evaluations, strict=report.strict)
    ] + builds
    return Counts(
        total=outcomes.total(),
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        errors=outcomes["error"],
        skipped=outcomes["skip"],
        weak=sum(evaluation.verdict.status is Status.WEAK for evaluation in report.evaluations),
        regressed=sum(status in _REGRESSED for status in failed),
        verdict=min(statuses, key=summary.rank).value if statuses else "",
    )
