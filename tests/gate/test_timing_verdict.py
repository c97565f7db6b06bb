"""From timings to a verdict."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timings import LABEL, RULE, blocks, compared, measured

from pytest_cgins.config import TimingGate
from pytest_cgins.core.measurement import Comparison, Measurement
from pytest_cgins.core.number_text import percent
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate.timing_verdict import (
    NOT_HELD,
    chance,
    confirmation,
    confirmed_outcome,
    decide_timing,
    fails,
    seen,
)

RIGHT = Verdict(status=Status.PASSED, reason=Reason.OK, message="", numbers={"error_share_of_tolerance": 0.5})
WEAK = Verdict(status=Status.WEAK, reason=Reason.NO_POWER, message="zeros would pass too", numbers={})
SLOW, SAME, FAST, OPEN = 0.08, 0.0, -0.08, 0.035
FLOOR = math.log(0.9)


def base(middle: float, sigma: float = 0.01, seed: int = 1) -> Comparison:
    return compared("base", blocks(middle, sigma, seed=seed))


def torch(middle: float, sigma: float = 0.01) -> Comparison:
    """Of log(kernel time / torch time), with nine tenths of torch's speed declared."""
    return compared("torch", blocks(middle, sigma), shift=FLOOR)


def decided(
    measurement: Measurement,
    verdict: Verdict = RIGHT,
    *,
    state: str = "timed",
    note: str = "",
    gate: TimingGate | None = None,
) -> Verdict:
    return decide_timing(
        verdict,
        measurement,
        base_state=state,
        base_note=note,
        gate=gate or TimingGate(),
        base_label=LABEL,
        kernel="scale",
    )


def of(verdict: Verdict) -> tuple[Status, Reason]:
    return verdict.status, verdict.reason


OUTCOMES = [
    (base(SLOW), base(SLOW), Status.SLOWER, Reason.SLOWER_THAN_BASE),
    (base(SLOW), base(SAME), Status.INCONCLUSIVE, Reason.NOT_CONFIRMED),
    (base(SLOW), base(FAST), Status.INCONCLUSIVE, Reason.NOT_CONFIRMED),
    (base(SLOW), base(OPEN, 0.2), Status.INCONCLUSIVE, Reason.NOT_CONFIRMED),
    (base(SLOW), None, Status.INCONCLUSIVE, Reason.NOT_CONFIRMED),
    (base(SAME), None, Status.SAME, Reason.NOT_SLOWER),
    (base(FAST), None, Status.FASTER, Reason.FASTER_THAN_BASE),
    (base(0.035, 0.2), None, Status.INCONCLUSIVE, Reason.NOISE),
]


@pytest.mark.parametrize(("first", "again", "status", "reason"), OUTCOMES)
def test_each_outcome_has_its_verdict(
    first: Comparison, again: Comparison | None, status: Status, reason: Reason
) -> None:
    """Only what two processes found is SLOWER; one that stands alone is never a failure."""
    verdict = decided(measured(first, again=None if again is None else [again]))
    assert of(verdict) == (status, reason)
    assert verdict.numbers["error_share_of_tolerance"] == 0.5
    assert (verdict.status.outcome == "fail") == (status is Status.SLOWER)


def test_a_confirmation_without_that_comparison_confirms_nothing() -> None:
    """A fresh process that was asked about torch alone says nothing of the base."""
    one = measured(base(SLOW), torch(0.2), again=[torch(0.2)])
    assert confirmed_outcome(one, "base") == "unconfirmed"
    assert of(decided(one)) == (Status.BELOW_FLOOR, Reason.BELOW_TORCH_FLOOR)


@pytest.mark.parametrize(
    ("first", "of_torch", "again", "status", "also"),
    [
        (base(SLOW), torch(0.2), [base(SLOW), torch(0.2)], Status.SLOWER, "also below-torch-floor: "),
        (base(SAME), torch(0.2), [torch(0.2)], Status.BELOW_FLOOR, ""),
        (base(OPEN, 0.2), torch(0.2), [torch(0.2)], Status.BELOW_FLOOR, "also noise: undecided"),
        (base(SLOW), torch(0.12, 0.2), [base(SLOW)], Status.SLOWER, "also noise: undecided"),
        (base(SAME), torch(0.12, 0.2), None, Status.INCONCLUSIVE, ""),
        (base(SAME), torch(0.2), None, Status.INCONCLUSIVE, ""),
        (base(OPEN, 0.2), torch(0.12, 0.2), None, Status.INCONCLUSIVE, "also noise: undecided"),
        (base(SAME), torch(-0.5), None, Status.SAME, ""),
        (base(FAST), torch(0.0), None, Status.FASTER, ""),
    ],
)
def test_the_worst_of_base_and_floor_counts(
    first: Comparison, of_torch: Comparison, again: list[Comparison] | None, status: Status, also: str
) -> None:
    """SLOWER comes before BELOW_FLOOR before INCONCLUSIVE before what passes; a second finding is told."""
    verdict = decided(measured(first, of_torch, again=again))
    assert verdict.status is status
    assert ("\nalso " in verdict.message) == bool(also)
    assert also in verdict.message


@pytest.mark.parametrize(
    ("state", "note", "status", "reason", "message"),
    [
        ("new", "", Status.NEW, Reason.NO_BASELINE, f"nothing to compare its time with: {LABEL} has no such kernel"),
        ("new", "it has no schema", Status.NEW, Reason.NO_BASELINE, "nothing to compare its time with: it has no schema"),
        ("unchanged", "", Status.PASSED, Reason.UNCHANGED, f"not timed against itself: the build is that of {LABEL}"),
        ("none", "no git repository", Status.PASSED, Reason.OK, f"{NOT_HELD}no git repository"),
        ("none", "", Status.PASSED, Reason.OK, f"{NOT_HELD}none was asked for"),
        ("refused", "g++ refused\n it", Status.PASSED, Reason.OK, f"{NOT_HELD}g++ refused it"),
    ],
)  # fmt: skip
def test_without_a_base_it_passes_and_says_why(
    state: str, note: str, status: Status, reason: Reason, message: str
) -> None:
    """A new kernel, an unchanged one, no base revision, a base that cannot be built: each has its words."""
    verdict = decided(measured(), state=state, note=note)
    assert (of(verdict), verdict.message) == ((status, reason), message)
    floored = decided(measured(torch(0.2), again=[torch(0.2)]), state=state, note=note)
    assert of(floored) == (Status.BELOW_FLOOR, Reason.BELOW_TORCH_FLOOR)


@pytest.mark.parametrize(
    ("measurement", "fail_on", "status"),
    [
        (measured(base(SAME)), "regression", Status.WEAK),
        (measured(base(FAST)), "inconclusive", Status.WEAK),
        (measured(base(SLOW), again=[base(SLOW)]), "regression", Status.SLOWER),
        (measured(base(SLOW), again=[base(SLOW)]), "inconclusive", Status.SLOWER),
        (measured(base(SLOW), again=[base(SLOW)]), "never", Status.WEAK),
        (measured(torch(0.2), again=[torch(0.2)]), "regression", Status.BELOW_FLOOR),
        (measured(base(OPEN, 0.2)), "regression", Status.WEAK),
        (measured(base(OPEN, 0.2)), "inconclusive", Status.INCONCLUSIVE),
        (measured(base(OPEN, 0.2)), "never", Status.WEAK),
    ],
)
def test_a_weak_case_stays_weak_unless_its_time_fails_it(
    measurement: Measurement, fail_on: str, status: Status
) -> None:
    """Neither hides the other: what passes a weak case is told below it, and the weakness below what fails it."""
    verdict = decided(measurement, WEAK, gate=TimingGate(fail_on=fail_on))
    assert verdict.status is status
    assert "zeros would pass too" in verdict.message
    if status is Status.WEAK:
        assert verdict.message.startswith("zeros would pass too\ntime: ")
    else:
        assert verdict.message.endswith("\nalso no-power: zeros would pass too")
    assert "ratio_to_base" in verdict.numbers or "ratio_to_torch" in verdict.numbers


@pytest.mark.parametrize(
    "status", [status for status in Status if status not in (Status.PASSED, Status.WEAK)]
)
def test_a_kernel_that_is_not_right_is_not_judged_by_its_time(status: Status) -> None:
    """Its verdict is returned as it is."""
    verdict = replace(RIGHT, status=status)
    assert decided(measured(base(SLOW), again=[base(SLOW)]), verdict) is verdict


def test_the_message_of_slower_has_all_numbers() -> None:
    """Both processes with interval, medians, blocks and the chance of noise; what is let pass. Nobody is told to accept it."""
    first, again = base(SLOW), compared("base", blocks(SLOW, seed=2), rule=replace(RULE, tests=1))
    one = measured(first, kernel_ns=12_345.0, base_ns=11_400.0, again=[again])
    lines = decided(one).message.splitlines()
    assert lines == [
        f"1.0836x the time of {LABEL}, 1.0788x in a fresh process; slowdowns up to 2% pass",
        "       time vs base (95%)        kernel   base     blocks  p-value, at most",
        "first  1.0836x (1.0715..1.0892)  12.3 us  11.4 us  17      1 in 22,000; 1 in 20,000 proves it",
        "fresh  1.0788x (1.0682..1.109)   12.3 us  11.4 us  9       1 in 140; 1 in 100 proves it",
    ]


def summed(middle: float, sums: float, *, most: int = 64, seed: int = 1) -> Comparison:
    """Medians about one log ratio, and sums about another."""
    return compared("base", blocks(middle, seed=seed), sums=blocks(sums, 0.02, most=most, seed=seed))


def test_states_that_last_prove_nothing() -> None:
    """The message says so, and not that more blocks would decide; unlikely runs alone decide it."""
    hanging = compared("base", blocks(SLOW), runs=0.001)
    verdict = decided(measured(hanging))
    assert of(verdict) == (Status.INCONCLUSIVE, Reason.NOISE)
    assert "block times are autocorrelated" in verdict.message
    free = compared("base", blocks(SLOW), runs=0.5)
    assert decided(measured(free, again=[free])).status is Status.SLOWER


def test_the_message_of_a_cost_that_comes_rarely() -> None:
    """Why a kernel fails whose median call is as fast, in words; the table has the sums of both processes."""
    one = measured(summed(SAME, 0.83), again=[summed(SAME, 0.85, seed=2)])
    verdict = decided(one)
    assert of(verdict) == (Status.SLOWER, Reason.SLOWER_THAN_BASE)
    head, _, first, fresh = verdict.message.splitlines()
    assert head == (
        "the median call is as fast, but the sum of 36 calls is 2.29 times as long: a cost that occurs rarely, against "
        f"{LABEL}; slowdowns up to 2% pass"
    )
    assert first.startswith("first  2.29x (sums) ")
    assert fresh.startswith("fresh  2.32x (sums) ")
    assert "17 sums" in first
    assert verdict.numbers["sum_ratio_to_base"] == pytest.approx(math.exp(0.83), rel=0.02)
    assert verdict.numbers["confirmed_sum_ratio_to_base"] == pytest.approx(math.exp(0.85), rel=0.02)


@pytest.mark.parametrize(
    ("measurement", "reason", "words"),
    [
        (measured(summed(-0.1, 0.83), again=[summed(-0.1, 0.83)]), Reason.SLOWER_THAN_BASE, "takes 0.905 times as long, but the sum of 36 calls is 2.29 times as long"),
        (measured(summed(0.1, -0.8)), Reason.FASTER_THAN_BASE, "takes 1.11 times as long, but the sum of 36 calls is 0.45 times as long: a rare cost is gone"),
        (measured(summed(0.0, 0.0)), Reason.NOT_SLOWER, "(a 5% slowdown would have been detected); sums of 36 calls 1."),
        (measured(summed(0.0, 0.8, most=4)), Reason.NOISE, "undecided after 4 sums: the median call is as fast, but the sum of 36"),
        (measured(summed(0.0, 0.8), again=[summed(0.0, 0.0)]), Reason.NOT_CONFIRMED, "(clean), sums of 36 calls 1."),
    ],
)  # fmt: skip
def test_what_sums_add_to_each_verdict(measurement: Measurement, reason: Reason, words: str) -> None:
    """Its reason is that of both tests together, and the message has the sums where they decide."""
    verdict = decided(measurement)
    assert verdict.reason is reason
    assert words in verdict.message


@given(st.floats(0.05, 1.0), st.floats(0.0, 0.02), st.integers(0, 99))
def test_no_regression_is_told_to_be_tolerated(middle: float, sigma: float, seed: int) -> None:
    """However large a proven slowdown is, no setting is proposed that would let it pass."""
    one = base(middle, sigma, seed)
    verdict = decided(measured(one, again=[one]))
    if verdict.status is Status.SLOWER:
        assert not re.search("→|tolerate|catch|floor", verdict.message)


def test_the_message_of_noise_says_what_could_be_seen_and_what_would_decide() -> None:
    """Observed ratio with interval, scatter, blocks, what would have been found, and the setting to change."""
    one = base(OPEN, 0.06)
    verdict = decided(measured(one))
    assert of(verdict) == (Status.INCONCLUSIVE, Reason.NOISE)
    head, could, remedy = verdict.message.splitlines()
    assert head == f"undecided after 64 blocks: 1.0448x (1.0132..1.0727) the time of {LABEL}"
    assert could == seen(one)
    assert could == (
        f"block noise is 5%: 64 blocks detect {percent(one.power.detectable or 0)}, the target is 5%; "
        f"about {one.power.blocks_needed} blocks would decide it"
    )
    least = one.power.blocks_needed or 0
    assert least <= 256 < 2 * least
    assert remedy == "→ take more: gate: {max_blocks: 256} under scale in cgins.yaml"


def test_noise_that_no_budget_overcomes_has_another_remedy() -> None:
    """Where no number of blocks decides, the machine or the question has to change."""
    verdict = decided(measured(base(0.0, 3.0)))
    _, could, remedy = verdict.message.splitlines()
    assert could == (
        "block noise is 250%: 64 blocks detect not even a doubled time, the target is 5%; no number of blocks "
        "is enough"
    )
    assert remedy == "→ run it again while nothing else runs on the device and the host"


def test_a_time_between_both_bounds_has_another_remedy() -> None:
    """Enough blocks in principle, and still undecided: it lies between what passes and what must be found."""
    ratios = [0.0344 if i % 2 else 0.0194 for i in range(64)]
    one = compared("base", ratios)
    assert one.outcome == "inconclusive"
    verdict = decided(measured(one))
    assert "\n→ its slowdown lies between tolerate and catch, or the blocks were unlucky" in verdict.message
    assert "gate: {max_blocks: 128} under scale" in verdict.message
    cut = compared("base", ratios[:4])
    assert decided(measured(cut)).message.endswith(
        "→ run it again: the test ended before all its blocks were taken"
    )


def test_the_message_of_not_confirmed_has_both_ratios() -> None:
    """What each process found, and why nothing follows from it."""
    text = decided(measured(base(SLOW), again=[base(SAME)])).message
    assert text.splitlines()[0] == (
        f"1.0836x (1.0715..1.0892) the time of {LABEL} in 17 blocks of one process, which would be slower, but a fresh process "
        "found 1.0003x (0.9857..1.0146) in 9 (clean): nothing is proven"
    )
    assert text.endswith("nothing is proven\n→ run it again")
    text = decided(measured(base(SLOW))).message
    assert "but no fresh process has been asked: nothing is proven" in text


def test_the_message_of_the_floor_speaks_of_speed() -> None:
    """Speed against torch, what is declared, both processes, and nothing on how to declare less."""
    one = torch(0.2)
    text = decided(measured(one, kernel_ns=24_400.0, again=[one])).message
    assert text.startswith(
        "0.818x the speed of torch, 0.818x in a fresh process; at least 0.9x is declared\n"
    )
    assert "kernel   torch  blocks" in text
    assert "24.4 us  20 us" in text
    assert "→" not in text


def test_numbers_are_those_of_the_measurement() -> None:
    """Medians, ratio and interval, blocks, scatter, e-value and threshold, settings, time spent."""
    first, again = base(SLOW), base(SLOW, seed=2)
    numbers = decided(measured(first, torch(0.2), base_ns=9_000.0, again=[again, torch(0.2)])).numbers
    assert numbers["kernel_median_ns_per_call"] == 10_000.0
    assert numbers["base_median_ns_per_call"] == 9_000.0
    assert numbers["torch_median_ns_per_call"] == 20_000.0
    assert numbers["speedup_vs_torch"] == 2.0
    assert numbers["ratio_to_base"] == first.ratio
    assert (numbers["ratio_to_base_low"], numbers["ratio_to_base_high"]) == (
        first.ratio_low,
        first.ratio_high,
    )
    assert numbers["blocks"] == len(first.log_ratios)
    assert numbers["sigma"] == first.power.sigma
    assert numbers["log_e_slower"] == first.log_e_slower >= numbers["log_e_threshold"] == math.log(20_000)
    assert (numbers["tests"], numbers["tolerate"], numbers["catch"]) == (200, 0.02, 0.05)
    assert numbers["confirmed_ratio_to_base"] == again.ratio
    assert numbers["floor_log_e_threshold"] == math.log(20_000)
    assert numbers["ratio_to_torch"] == torch(0.2).ratio
    assert numbers["timed_ms"] == 12.5


@pytest.mark.parametrize("status", list(Status))
def test_fail_on_speaks_of_times_alone(status: Status) -> None:
    """It changes what three statuses mean, and no other."""
    meant = [fails(status, fail_on) for fail_on in ("never", "regression", "inconclusive")]
    if status in (Status.SLOWER, Status.BELOW_FLOOR):
        assert meant == [False, True, True]
    elif status is Status.INCONCLUSIVE:
        assert meant == [False, False, True]
    else:
        assert meant == [status.outcome == "fail"] * 3


@given(st.floats(-5.0, 5000.0))
def test_a_chance_in_words_is_never_smaller_than_the_bound(log_e: float) -> None:
    """1 in n with n ≤ E: rounded down, and never wider off than a factor of ten."""
    words = chance(log_e).removeprefix("1 in ").replace(",", "")
    log_n = float(words.removeprefix("10^")) * math.log(10) if "^" in words else math.log(float(words))
    assert log_n <= max(log_e, 0) + 1e-9
    assert log_n >= log_e - math.log(10) - 1e-9


def test_confirmation_is_of_the_same_arm() -> None:
    """The base's confirmation is never that of the floor."""
    one = measured(base(SLOW), torch(0.2), again=[torch(0.3)])
    assert confirmation(one, "base") is None
    assert confirmation(one, "torch") == torch(0.3)
