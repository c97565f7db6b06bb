"""How many cases and builds of a report ended how."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from pytest_cgins.model import SessionReport, Status
from pytest_cgins.report import summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Cases and builds of a report by outcome; the first is the sum of the next four."""

    total: int
    """All of them."""
    passed: int
    """Those that pytest passes: `WEAK` and `INCONCLUSIVE` ones too, unless they were made to fail."""
    failed: int
    """Those that a kernel failed."""
    errors: int
    """`TRACE_DRIFT` and `INFRASTRUCTURE`."""
    skipped: int
    """Those that nothing gated."""
    weak: int
    """`WEAK` ones, whether they passed or failed."""

    def lines(self) -> str:
        """`name=number` a line, as scripts read it."""
        return "".join(f"{name}={number}\n" for name, number in asdict(self).items())


def counts(report: SessionReport) -> Counts:
    """Count; under `--cgins-strict` a `WEAK` case failed."""
    outcomes: Counter[str] = Counter(
        summary.outcome(evaluation, strict=report.strict) for evaluation in report.evaluations
    )
    outcomes.update(compilation.verdict.status.outcome for compilation in report.compilations)
    return Counts(
        total=outcomes.total(),
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        errors=outcomes["error"],
        skipped=outcomes["skip"],
        weak=sum(evaluation.verdict.status is Status.WEAK for evaluation in report.evaluations),
    )
