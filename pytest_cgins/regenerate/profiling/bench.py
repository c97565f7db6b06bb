"""Cases checked and timed: a kernel against torch, torch.compile and its base revision, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core.measurement import ARM_LETTERS, Arm, Measurement
from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate.profiling import selection
from pytest_cgins.regenerate.profiling.evidence_documents import (
    EVIDENCE_VERSION,
    BenchEvidence,
    BenchRow,
    Ratio,
)
from pytest_cgins.timing.sequential import median_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What came of it."""

    evaluations: tuple[Evaluation, ...]
    """One a case."""
    seed: int
    """Of the inputs."""
    environments: tuple[Environment, ...]
    """The devices of the machine."""

    @property
    def device_name(self) -> str:
        """Of the devices that the cases ran on."""
        used = {evaluation.case.device.partition(":")[0] for evaluation in self.evaluations}
        return ", ".join(one.device_name for one in self.environments if one.device in used)

    @property
    def failed(self) -> bool:
        """Whether a case came out as one that the gate would fail."""
        return any(evaluation.verdict.status.outcome in ("fail", "error") for evaluation in self.evaluations)


def evaluate(
    config: Config,
    wanted: str,
    *,
    device: str | None,
    text: str,
    seed: int,
    baseline: str = NONE,
    compile_arm: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Timed:
    """Check and time the cases of a kernel.

    Args:
        config: the file.
        wanted: `NAME` or `NAME/IMPLEMENTATION`.
        device: `cpu` or `cuda` leaves the other's cases out.
        text: only cases with this in their names.
        seed: of the inputs.
        baseline: what they are timed against besides torch.
        compile_arm: whether torch.compile is an arm.
        say: takes a line of progress.

    Raises:
        ConfigError: there is no such kernel or case.
        RevisionError: a commit was named, and git does not know it.
    """
    chosen = selection.chosen(config, wanted, device)
    count = 0
    options = TimingOptions(
        baseline=baseline, compile=compile_arm, noise=Calibrations().noise, tests=lambda: max(1, 4 * count)
    )
    evaluator = Evaluator(config, seed=seed, timing_options=options)
    with closing(evaluator):
        evaluator.require_base()
        cases = selection.cases_of(evaluator.cases(), chosen, text)
        count = len(cases)
        evaluator.build_ahead(cases)
        found = []
        for number, case in enumerate(cases, 1):
            say(f"{case.name} ({number} of {count})")
            found.append(evaluator.evaluate(case))
        environments = evaluator.environments()
    return Timed(evaluations=tuple(found), seed=seed, environments=environments)


Other = Literal["torch", "compile", "base"]


def evidence(kernel: str, timed: Timed) -> BenchEvidence:
    """Times of a kernel's cases."""
    return BenchEvidence(
        version=EVIDENCE_VERSION,
        kernel=kernel,
        seed=timed.seed,
        device_name=timed.device_name,
        rows=tuple(_row(evaluation) for evaluation in timed.evaluations),
    )


def _row(one: Evaluation) -> BenchRow:
    measured = one.measurement
    return BenchRow(
        case=one.case.name,
        key=one.tested.build if one.tested is not None else "",
        status=one.verdict.status.value,
        message=one.verdict.message.partition("\n")[0],
        ns_per_call=measured.kernel.median_ns_per_call if measured is not None else None,
        iqr_ns_per_call=measured.kernel.iqr_ns_per_call if measured is not None else None,
        method=measured.method if measured is not None else "",
        cache=measured.cache if measured is not None else "",
        ratios=ratios(measured) if measured is not None else (),
        notes=measured.notes if measured is not None else (),
    )


def _arms(measured: Measurement) -> dict[Other, Arm | None]:
    return {"torch": measured.torch, "compile": measured.compiled, "base": measured.base}


def ratios(measured: Measurement) -> tuple[Ratio, ...]:
    """The other arms' times over the kernel's."""
    found = []
    for name, arm in _arms(measured).items():
        logs = log_ratios(measured, name)
        if arm is not None and logs:
            low, median, high = map(math.exp, median_interval(logs))
            ends = {"ratio": median, "low": low, "high": high}
            found.append(Ratio(against=name, ns_per_call=arm.median_ns_per_call, blocks=len(logs), **ends))
    return tuple(found)


def log_ratios(measured: Measurement, against: Other) -> list[float]:
    """½(ln a₁ + ln a₂ − ln k₁ − ln k₂) of each block that has the other arm."""
    return [
        sum(map(math.log, other)) / len(other) - sum(map(math.log, kernel)) / len(kernel)
        for kernel, other in pairs(measured, against)
    ]


def pairs(measured: Measurement, against: Other) -> list[tuple[list[float], list[float]]]:
    """Times of the kernel and of another arm in each block that has both."""
    arm = _arms(measured)[against]
    theirs = iter(arm.samples_ns_per_call if arm is not None else ())
    ours = iter(measured.kernel.samples_ns_per_call)
    found = []
    for order in measured.orders.split():
        kernel = list(islice(ours, order.count(ARM_LETTERS["kernel"])))
        other = list(islice(theirs, order.count(ARM_LETTERS[against])))
        if kernel and other:
            found.append((kernel, other))
    return found
