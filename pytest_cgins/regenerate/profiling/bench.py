"""A kernel against torch, torch.compile and its base revision, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from pytest_cgins.core.measurement import ARM_LETTERS, Arm, ArmName, Measurement
from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.profiling.model import EVIDENCE_VERSION, BenchEvidence, BenchRow, Ratio
from pytest_cgins.regenerate.profiling.timed import Timed
from pytest_cgins.timing.sequential import median_interval

Other = Literal["torch", "compile", "base"]
_ARMS: tuple[Other, ...] = ("torch", "compile", "base")


def evidence(kernel: str, timed: Timed) -> BenchEvidence:
    """Times of a kernel's cases."""
    return BenchEvidence(
        version=EVIDENCE_VERSION,
        kernel=kernel,
        seed=timed.seed,
        device_name=timed.device_name,
        rows=tuple(_row(one) for one in timed.evaluations),
    )


def ratios(measured: Measurement) -> tuple[Ratio, ...]:
    """The other arms' times over the kernel's."""
    return tuple(_ratios(measured))


def _row(one: Evaluation) -> BenchRow:
    measured = one.measurement
    status, message = one.verdict.status.value, one.verdict.message.partition("\n")[0]
    key = one.tested.build if one.tested is not None else ""
    if measured is None:
        return BenchRow(
            case=one.case.name, key=key, status=status, message=message, ns_per_call=None, iqr_ns_per_call=None,
            method="", cache="", ratios=(),
        )  # fmt: skip
    return BenchRow(
        case=one.case.name,
        key=key,
        status=status,
        message=message,
        ns_per_call=measured.kernel.median_ns_per_call,
        iqr_ns_per_call=measured.kernel.iqr_ns_per_call,
        method=measured.method,
        cache=measured.cache,
        ratios=ratios(measured),
        notes=measured.notes,
    )


def _ratios(measured: Measurement) -> Iterator[Ratio]:
    arms: dict[ArmName, Arm | None] = {
        "torch": measured.torch,
        "compile": measured.compiled,
        "base": measured.base,
    }
    for name in _ARMS:
        arm = arms[name]
        logs = log_ratios(measured, name) if arm is not None else []
        if arm is not None and logs:
            low, median, high = median_interval(logs)
            yield Ratio(
                against=name,
                ns_per_call=arm.median_ns_per_call,
                ratio=math.exp(median),
                low=math.exp(low),
                high=math.exp(high),
                blocks=len(logs),
            )


def log_ratios(measured: Measurement, against: Other) -> list[float]:
    """½(ln a₁ + ln a₂ − ln k₁ − ln k₂) of each block that has the other arm."""
    return [
        sum(map(math.log, other)) / len(other) - sum(map(math.log, kernel)) / len(kernel)
        for kernel, other in pairs(measured, against)
    ]


def pairs(measured: Measurement, against: Other) -> list[tuple[list[float], list[float]]]:
    """Times of the kernel and of another arm in each block that has both."""
    arm = {"torch": measured.torch, "compile": measured.compiled, "base": measured.base}[against]
    theirs = iter(arm.samples_ns_per_call if arm is not None else ())
    ours = iter(measured.kernel.samples_ns_per_call)
    found = []
    for order in measured.orders.split():
        kernel = list(islice(ours, order.count(ARM_LETTERS["kernel"])))
        other = list(islice(theirs, order.count(ARM_LETTERS[against])))
        if kernel and other:
            found.append((kernel, other))
    return found
