"""From what was measured to a verdict."""

from __future__ import annotations

from pytest_cgins.model import Correctness, Measurement, Reason, Status, Verdict


def decide(correctness: Correctness, measurement: Measurement | None) -> Verdict:
    """Judge one case that ran to its end.

    Args:
        correctness: every check that was made, and what the case can tell from the right answer.
        measurement: its timings; reported, they do not decide anything yet.

    Returns:
        `INCORRECT` with the first check that failed, `SKIPPED` when no element was compared (empty never
        passes), `WEAK` when a forged answer would have passed too, else `PASSED`.
    """
    numbers = _numbers(correctness, measurement)
    failed = [check for check in correctness.checks if not check.passed]
    if failed:
        return Verdict(
            status=Status.INCORRECT, reason=failed[0].reason, message=failed[0].message, numbers=numbers
        )
    if not any(check.compared for check in correctness.checks):
        return Verdict(
            status=Status.SKIPPED,
            reason=Reason.EMPTY,
            message="nothing could be compared: the op's outputs have no elements in this call",
            numbers=numbers,
        )
    accepted = [power.forgery for power in correctness.power if not power.caught]
    if accepted:
        return Verdict(
            status=Status.WEAK,
            reason=Reason.NO_POWER,
            message=f"right, but the case would also accept {', '.join(accepted)} as the answer",
            numbers=numbers,
        )
    return Verdict(status=Status.PASSED, reason=Reason.OK, message="", numbers=numbers)


def _numbers(correctness: Correctness, measurement: Measurement | None) -> dict[str, float]:
    numbers: dict[str, float] = {}
    if correctness.share is not None:
        numbers["error_share_of_tolerance"] = correctness.share
    if measurement is not None:
        numbers["kernel_median_ns_per_call"] = measurement.kernel.median_ns_per_call
        numbers["torch_median_ns_per_call"] = measurement.torch.median_ns_per_call
        numbers["speedup_vs_torch"] = measurement.speedup_vs_torch
    return numbers
