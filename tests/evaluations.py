"""Evaluations made to measure."""

from __future__ import annotations

from pytest_cgins.config.timing_gate import FailOn
from pytest_cgins.core.case import Case
from pytest_cgins.core.measurement import Arm, Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Check, Correctness, ForgeryCheck, Reason, Status, Verdict, WorstElement


def _measurement(kernel_ns: float, torch_ns: float) -> Measurement:
    def arm(name: str, median: float) -> Arm:
        return Arm(
            name=name,
            samples_ns_per_call=(median, median),
            calls_per_batch=1,
            median_ns_per_call=median,
            iqr_ns_per_call=0.0,
        )

    speedup = torch_ns / kernel_ns
    return Measurement(
        method="perf-counter",
        cache="warm",
        orders="KTTK",
        kernel=arm("kernel", kernel_ns),
        torch=arm("torch", torch_ns),
        speedup_vs_torch=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
    )


def make_evaluation(
    status: Status = Status.PASSED,
    *,
    kernel: str = "scale",
    implementation: str = "cpp",
    device: str = "cpu",
    signature: str = "f32-2x3-0001",
    reason: Reason = Reason.OK,
    message: str = "",
    share: float | None = 0.25,
    times_ns: tuple[float, float] | None = (1000.0, 2000.0),
    timing: Measurement | None = None,
    fail_on: FailOn = "regression",
    accepted: tuple[str, ...] = (),
    worst: WorstElement | None = None,
    picture: str = "",
    output: str = "",
    build_seconds: float = 0.0,
) -> Evaluation:
    """An evaluation with the given status, numbers and texts."""
    right = status.outcome == "pass" or status in (Status.SLOWER, Status.BELOW_FLOOR)
    check = Check(
        rule="reference",
        inputs="fresh",
        passed=right,
        reason=reason,
        message=message,
        share=share,
        wrong=0 if right else 2,
        compared=6,
        worst=worst,
        map=picture,
    )
    power = tuple(ForgeryCheck(forgery=name, caught=name not in accepted) for name in ("zeros", "ones"))
    ran = status not in (Status.SKIPPED, Status.BUILD_ERROR, Status.INFRASTRUCTURE, Status.TRACE_DRIFT)
    return Evaluation(
        case=Case(
            kernel=kernel,
            implementation=implementation,
            device=device,
            op="torch.nn.functional.gelu",
            pack="tiny",
            pack_path="/packs/tiny",
            trace_id="0" * 16,
            signature=signature,
            dtype="float32",
        ),
        verdict=Verdict(status=status, reason=reason, message=message, numbers={}),
        kernel_digest="d" * 64,
        correctness=Correctness(checks=(check,), power=power) if ran else None,
        measurement=timing or (_measurement(*times_ns) if ran and times_ns else None),
        build_seconds=build_seconds,
        seconds=0.5,
        output=output,
        fail_on=fail_on,
    )
