"""What a variant without a method says of the method."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_cgins.core.measurement import Arm, Measurement
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.ablation import attribute
from pytest_cgins.regenerate.profiling import bench
from pytest_cgins.timing.sequential import Rule, SequentialTest
from tests.evaluations import make_evaluation

RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=1, most_blocks=64)


def arm(name: str, *samples: float) -> Arm:
    return Arm(
        name=name, samples_ns_per_call=samples, calls_per_batch=1, median_ns_per_call=sorted(samples)[len(samples) // 2],
        iqr_ns_per_call=0.0,
    )  # type: ignore[arg-type] # fmt: skip


def measured(ratio: float, blocks: int = 20) -> Measurement:
    """A variant that takes `ratio` times as long as its champion of a microsecond; torch in the first block."""
    test = SequentialTest(RULE)
    orders = ["TKBBKT", *["KBBK"] * (blocks - 1)]
    kernel = [1000 * ratio] * 2 * blocks
    made = Measurement(
        method="cuda-graph", cache="cold", orders=" ".join(orders), kernel=arm("kernel", *kernel),
        torch=arm("torch", 3000.0, 3000.0), base=arm("base", *[1000.0] * 2 * blocks), speedup_vs_torch=3 / ratio,
        speedup_low=3 / ratio, speedup_high=3 / ratio,
    )  # fmt: skip
    for log_ratio in bench.log_ratios(made, "base"):
        if not test.done:
            test.add(-log_ratio)
    return replace(made, comparisons=(test.comparison("base"),))


def test_proven_slower_without_it_contributes() -> None:
    """Its attribution is the difference within blocks, in milliseconds, with an interval around it."""
    slower = make_evaluation(Status.SLOWER, timing=measured(1.25))
    same = make_evaluation(Status.SAME, timing=measured(1.0), signature="f32-4x4-0002")
    found = attribute("tiling", [slower, same])
    assert (found.state, found.contributes) == ("contributes", True)
    assert found.message == "proven slower without it in 1 of 2 cases"
    first, second = found.cases
    assert (first.champion_ns_per_call, first.without_ns_per_call, first.outcome) == (
        1000.0,
        1250.0,
        "slower",
    )
    assert (first.low_ms, first.attribution_ms, first.high_ms) == pytest.approx((0.00025,) * 3)
    assert (second.attribution_ms, second.outcome) == (0.0, "clean")


def test_slower_in_one_process_alone_proves_nothing() -> None:
    """What a fresh process did not confirm is undecided."""
    once = replace(measured(1.25), confirmation=measured(1.0))
    found = attribute("x", [make_evaluation(Status.INCONCLUSIVE, reason=Reason.NOT_CONFIRMED, timing=once)])
    assert (found.state, found.contributes) == ("undecided", False)


@pytest.mark.parametrize("ratio", [1.0, 0.8])
def test_not_slower_without_it_is_no_gain(ratio: float) -> None:
    """Also where the kernel is faster without it."""
    found = attribute("x", [make_evaluation(Status.SAME, timing=measured(ratio))])
    assert (found.state, found.contributes) == ("no-gain", False)


def test_a_wrong_answer_without_it_is_essential() -> None:
    """One case is enough."""
    wrong = make_evaluation(Status.INCORRECT, message="6 of 6 elements are wrong\nmore")
    found = attribute("x", [make_evaluation(Status.SAME, timing=measured(1.0)), wrong])
    assert (found.state, found.contributes) == ("essential", True)
    assert found.message.endswith("INCORRECT: 6 of 6 elements are wrong")


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (Status.BUILD_ERROR, Reason.COMPILER, "BUILD_ERROR: no"),
        (Status.RUNTIME_ERROR, Reason.RAISED, "RUNTIME_ERROR: no"),
        (Status.TIMEOUT, Reason.TIMED_OUT, "TIMEOUT: no"),
        (Status.SKIPPED, Reason.DEVICE_ABSENT, "it was not timed"),
        (Status.PASSED, Reason.UNCHANGED, "nothing was taken out"),
        (Status.PASSED, Reason.OK, "it was not timed"),
    ],
)
def test_what_was_not_ablated_did_not_contribute(status: Status, reason: Reason, words: str) -> None:
    """A build error, a crash, an absent device, the champion's own build and a missing comparison: all are told."""
    found = attribute("x", [make_evaluation(status, reason=reason, message="no")])
    assert (found.state, found.contributes) == ("not-ablated", False)
    assert words in found.message
    assert attribute("x", []).state == "not-ablated"


def test_ratios_are_by_the_blocks_that_have_the_arm() -> None:
    """torch stood in one block of 20, the base in all; above 1 the kernel is faster."""
    torch, base = bench.ratios(measured(1.25))
    assert (torch.against, torch.blocks, torch.ratio) == ("torch", 1, pytest.approx(2.4))
    assert (base.against, base.blocks, base.low, base.ratio, base.high) == (
        "base", 20, pytest.approx(0.8), pytest.approx(0.8), pytest.approx(0.8),
    )  # fmt: skip
