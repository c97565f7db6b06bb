from dataclasses import replace

import pytest

from pytest_cgins.gate import decide
from pytest_cgins.model import Arm, Check, Correctness, Measurement, Power, Reason, Status

GOOD = Check(
    rule="gold", inputs="recorded", passed=True, reason=Reason.OK, message="", share=0.25, compared=8
)
BAD = Check(
    rule="reference",
    inputs="fresh",
    passed=False,
    reason=Reason.REFERENCE_MISMATCH,
    message="row 3 is wrong",
    share=40.0,
)
CAUGHT = Power(forgery="zeros", caught=True)
ARM = Arm(
    name="kernel",
    samples_ns_per_call=(1100.0, 1190.0),
    median_ns_per_call=1145.0,
    iqr_ns_per_call=45.0,
)
MEASUREMENT = Measurement(
    method="perf-counter",
    cache="warm",
    calls_per_batch=100,
    orders="KTTK",
    kernel=ARM,
    torch=replace(ARM, name="torch", median_ns_per_call=2290.0),
    speedup_vs_torch=2.0,
    speedup_low=1.9,
    speedup_high=2.1,
)


def test_a_right_kernel_with_a_telling_case_passes() -> None:
    """All checks hold and every forgery is caught: PASSED, with the error's share of tolerance."""
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,)), None)
    assert (verdict.status, verdict.reason, verdict.message) == (Status.PASSED, Reason.OK, "")
    assert verdict.numbers == {"error_share_of_tolerance": 0.25}


def test_the_first_failed_check_gives_reason_and_message() -> None:
    """One failed check is enough, whatever the others say."""
    verdict = decide(Correctness(checks=(GOOD, BAD, GOOD), power=(CAUGHT,)), None)
    assert (verdict.status, verdict.reason) == (Status.INCORRECT, Reason.REFERENCE_MISMATCH)
    assert verdict.message == "row 3 is wrong"
    assert verdict.numbers["error_share_of_tolerance"] == 40.0


@pytest.mark.parametrize("checks", [(), (replace(GOOD, compared=0),)])
def test_nothing_compared_is_not_a_pass(checks: tuple[Check, ...]) -> None:
    """A case in which no element was compared is skipped with its reason: empty never passes."""
    verdict = decide(Correctness(checks=checks, power=()), None)
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, Reason.EMPTY)
    assert "nothing could be compared" in verdict.message


def test_a_case_that_accepts_a_forgery_is_weak() -> None:
    """The message names each forged answer that would have passed."""
    power = (CAUGHT, Power(forgery="ones", caught=False), Power(forgery="permuted-gold", caught=False))
    verdict = decide(Correctness(checks=(GOOD,), power=power), None)
    assert (verdict.status, verdict.reason) == (Status.WEAK, Reason.NO_POWER)
    assert "ones, permuted-gold" in verdict.message


def test_an_incorrect_kernel_stays_incorrect_on_a_weak_case() -> None:
    """Weakness of the case never hides a failure."""
    power = (Power(forgery="zeros", caught=False),)
    assert decide(Correctness(checks=(BAD,), power=power), None).status is Status.INCORRECT


@pytest.mark.parametrize("speedup", [0.01, 100.0])
def test_timings_are_reported_and_decide_nothing(speedup: float) -> None:
    """A slow kernel passes as a fast one does; the numbers are those of the measurement."""
    measurement = replace(MEASUREMENT, speedup_vs_torch=speedup)
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,)), measurement)
    assert verdict.status is Status.PASSED
    assert verdict.numbers["kernel_median_ns_per_call"] == 1145.0
    assert verdict.numbers["torch_median_ns_per_call"] == 2290.0
    assert verdict.numbers["speedup_vs_torch"] == speedup


def test_outcome_of_each_status() -> None:
    """Every status has exactly the outcome that the documentation gives it."""
    outcomes = {status: status.outcome for status in Status}
    assert [s.name for s, outcome in outcomes.items() if outcome == "error"] == [
        "TRACE_DRIFT",
        "INFRASTRUCTURE",
    ]
    assert [s.name for s, outcome in outcomes.items() if outcome == "skip"] == ["SKIPPED"]
    assert [s.name for s, outcome in outcomes.items() if outcome == "pass"] == [
        "PASSED",
        "FASTER",
        "SAME",
        "NEW",
        "WEAK",
        "INCONCLUSIVE",
    ]
