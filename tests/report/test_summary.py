"""From evaluations to rows and lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from reports import report_of
from timings import compared, measured

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import summary, tables, times

Make = Callable[..., Evaluation]


def kernels(*evaluations: Evaluation) -> list[list[str]]:
    """The texts of the table of kernels."""
    return [[cell.text for cell in row] for row in tables.kernels(report_of(*evaluations)).rows]


def test_rows_are_one_an_implementation(make_evaluation: Make) -> None:
    """Implementations of one name on two devices are two rows; cases of one are counted together."""
    found = kernels(
        make_evaluation(share=0.2, times_ns=(100, 200)),
        make_evaluation(signature="b", share=0.9, times_ns=(100, 50)),
        make_evaluation(signature="c", share=0.1, times_ns=(100, 100)),
        make_evaluation(Status.SKIPPED, device="cuda:0"),
    )
    assert found == [
        ["scale", "cpp (cpu)", "3", "3 PASSED", "0.9", "–", "1x (0.5..2)", "–", "–"],
        ["scale", "cpp (cuda)", "1", "1 SKIPPED", "–", "–", "–", "–", "–"],
    ]


def test_statuses_are_counted_worst_first(make_evaluation: Make) -> None:
    """A failure stands before what passed, however few there are."""
    statuses = [Status.PASSED, Status.PASSED, Status.INCORRECT, Status.WEAK]
    (row,) = kernels(*(make_evaluation(status) for status in statuses))
    assert row[3] == "1 INCORRECT, 1 WEAK, 2 PASSED"


def test_rank_knows_every_status() -> None:
    """Each status has its own place, and every failure is worse than everything that passes."""
    assert sorted(summary.rank(status) for status in Status) == list(range(len(Status)))
    worst_pass = min(summary.rank(status) for status in Status if status.outcome == "pass")
    assert all(summary.rank(status) < worst_pass for status in Status if status.outcome in ("fail", "error"))


def test_cases_are_ordered_by_status_then_error(make_evaluation: Make) -> None:
    """Wrong answers come first, those farthest out before the others, and errors after all failures."""
    found = summary.worst_first(
        [
            make_evaluation(Status.INFRASTRUCTURE, signature="lost"),
            make_evaluation(Status.INCORRECT, signature="near", share=1.5),
            make_evaluation(Status.TIMEOUT, signature="late"),
            make_evaluation(Status.PASSED, signature="fine"),
            make_evaluation(Status.INCORRECT, signature="far", share=80.0),
        ]
    )
    assert [evaluation.case.signature for evaluation in found] == ["far", "near", "late", "lost", "fine"]


@pytest.mark.parametrize("fail_on", ["regression", "never"])
def test_slower_cases_come_by_their_slowdown(make_evaluation: Make, fail_on: str) -> None:
    """Whatever their errors are: in the summary, on the page, in the comment and where they are let pass."""

    def slower(name: str, ratio: float, share: float) -> Evaluation:
        found = compared("base", [math.log(ratio)] * 20)
        timing = measured(found, base_ns=10_000.0, again=[found])
        one = make_evaluation(Status.SLOWER, signature=name, share=share, fail_on=fail_on)
        return replace(one, measurement=timing)

    some = [slower("little", 1.1, 0.9), slower("most", 2.0, 0.001), slower("more", 1.5, 0.3)]
    wanted = ["most", "more", "little"]
    for found in (summary.worst_first(some), *([times.let_pass(some)] if fail_on == "never" else [])):
        assert [one.case.signature for one in found] == wanted


def test_cases_below_their_floor_come_by_their_speed(make_evaluation: Make) -> None:
    """The slowest against torch first."""
    some = [
        replace(
            make_evaluation(Status.BELOW_FLOOR, signature=name, share=share),
            measurement=measured(torch_ns=ns),
        )
        for name, ns, share in (("slow", 5_000.0, 0.9), ("slowest", 2_000.0, 0.1))
    ]
    assert [one.case.signature for one in summary.worst_first(some)] == ["slowest", "slow"]


def test_weak_fails_only_when_strict(make_evaluation: Make) -> None:
    """A weak case is a failure under --cgins-strict alone."""
    weak = make_evaluation(Status.WEAK, accepted=("zeros",))
    assert summary.outcome(weak, strict=False) == "pass"
    assert summary.outcome(weak, strict=True) == "fail"
    assert summary.weak([weak, make_evaluation()]) == ((weak, ("zeros",)),)


def test_skips_are_counted_by_reason(make_evaluation: Make) -> None:
    """Equal reasons are one line with a number."""
    absent = make_evaluation(Status.SKIPPED, reason=Reason.DEVICE_ABSENT, message="no cuda device")
    other = make_evaluation(Status.SKIPPED, reason=Reason.CONTRACT)
    assert summary.skips([other, absent, absent]) == (("no cuda device", 2), ("contract", 1))


def test_ungated_is_what_a_contract_covers_nowhere(make_evaluation: Make) -> None:
    """Every case of the implementation must be skipped for its contract; an absent device is another matter."""

    def skip(reason: Reason, **case: str) -> Evaluation:
        return make_evaluation(Status.SKIPPED, reason=reason, message="takes no bias\n-> declare it", **case)

    found = summary.ungated(
        [
            skip(Reason.CONTRACT, kernel="none", signature="a"),
            skip(Reason.CONTRACT, kernel="none", signature="b"),
            skip(Reason.CONTRACT, kernel="some", signature="a"),
            make_evaluation(kernel="some", signature="b"),
            skip(Reason.DEVICE_ABSENT, kernel="absent"),
        ]
    )
    (one,) = found
    assert one == summary.Ungated(
        kernel="none", implementation="cpp", device="cpu", cases=2, message="takes no bias"
    )


def test_two_files_have_kernels_of_their_own(make_evaluation: Make) -> None:
    """Where two `cgins.yaml` have a kernel of one name, each has a row, and neither hides that the other is not gated."""
    skipped = make_evaluation(Status.SKIPPED, reason=Reason.CONTRACT, message="takes no bias")
    both = [replace(skipped, config="a/cgins.yaml"), replace(make_evaluation(), config="b/cgins.yaml")]
    assert [row[0] for row in kernels(*both)] == ["a/cgins.yaml::scale", "b/cgins.yaml::scale"]
    assert [one.kernel for one in summary.ungated(both)] == ["a/cgins.yaml::scale"]
    assert [row[0] for row in kernels(both[0])] == ["scale"]


def test_builds_are_counted_once_a_kernel(make_evaluation: Make) -> None:
    """A build that several cases or processes report counts once."""
    evaluations = [
        make_evaluation(build_seconds=2.0),
        make_evaluation(signature="b", build_seconds=0.0),
        make_evaluation(signature="c", build_seconds=1.5),
        make_evaluation(kernel="other", build_seconds=3.0),
    ]
    assert summary.build_seconds(evaluations) == 5.0
