"""Reports of several runs as one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reports import report_of
from timings import LABEL, RULE, blocks, compared, measured

from pytest_cgins.app import cli
from pytest_cgins.config import TimingGate
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ConfigError, MergeError
from pytest_cgins.core.measurement import Comparison
from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport, Shard
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.gate.timing_verdict import decide_timing, timing_numbers
from pytest_cgins.report import document, formats, merge
from pytest_cgins.report.merge import Part

Make = Callable[..., Evaluation]
H200 = Environment(device="cuda", device_name="NVIDIA H200", python="3.11", torch="2.13")
A100 = replace(H200, device_name="NVIDIA A100")


def parts(*reports: SessionReport) -> list[Part]:
    return [Part(name=f"{name}.json", report=report) for name, report in zip("abcdef", reports, strict=False)]


def merged(*reports: SessionReport, expected: int = 0) -> SessionReport:
    return merge.merged(parts(*reports), expected=expected)


def shard(report: SessionReport, number: int, count: int) -> SessionReport:
    return replace(report, shard=Shard(number=number, count=count))


def timed(
    make: Make,
    signature: str,
    log_ratios: list[float],
    *,
    tests: int,
    floor: bool = False,
    sums: list[float] | None = None,
    runs: float | None = None,
    accepted: tuple[str, ...] = (),
) -> Evaluation:
    """A case judged by its time as the gate does it, as one of so many tests; a fresh process agrees."""
    rule = replace(RULE, tests=tests)
    against = "torch" if floor else "base"
    first = compared(against, log_ratios, rule=rule, sums=sums or (), runs=runs)
    again = (
        compared(against, log_ratios, rule=replace(rule, tests=1), sums=sums or ())
        if first.outcome == "slower"
        else None
    )
    timing = measured(first, again=None if again is None else [again])
    one = make(signature=signature, timing=timing, device="cuda:0", accepted=accepted)
    assert one.correctness is not None
    right = gate.decide(one.correctness, timing)
    verdict = decide_timing(
        right, timing, base_state="new" if floor else "none", base_note="", gate=TimingGate(), base_label=LABEL,
        kernel="scale",
    )  # fmt: skip
    return replace(one, verdict=verdict)


def based(*evaluations: Evaluation, environment: Environment = H200, exit_status: int = 0) -> SessionReport:
    report = report_of(*evaluations, exit_status=exit_status)
    return replace(report, environments=(environment,), base_revision=LABEL)


# ---- parts


def test_shards_make_one_report(make_evaluation: Make) -> None:
    """All cases, devices and runs are there; wall times add up, and the exit code is that of all cases."""
    good, bad = make_evaluation(signature="a"), make_evaluation(Status.INCORRECT, signature="b")
    first = shard(replace(report_of(good, exit_status=0), seed=1), 1, 2)
    second = shard(replace(report_of(bad, exit_status=1), seed=2), 2, 2)
    whole = merged(second, first)
    assert [one.case.signature for one in whole.evaluations] == ["a", "b"]
    assert whole.environments == first.environments
    assert (whole.exit_status, whole.seconds, whole.shard) == (1, 3.0, None)
    assert [(run.seed, run.shard, run.exit_status) for run in whole.merged] == [
        (2, second.shard, 1),
        (1, first.shard, 0),
    ]
    text = formats.FORMATS["terminal"](whole)
    assert "seeds 2, 1 of 2 runs" in text
    assert documents.load(SessionReport, documents.dump(whole)) == whole


def test_a_missing_shard_is_named(make_evaluation: Make) -> None:
    """One of four and two of four; the files that are there are told with their numbers."""
    reports = [shard(report_of(make_evaluation(signature=f"s{n}")), n, 4) for n in range(1, 5)]
    with pytest.raises(
        MergeError, match=r"^shard 3 of 4 is missing; there are a\.json \(shard 1 of 4\), "
    ) as error:
        merged(*reports[:2], reports[3])
    assert "--cgins-shard=I/4" in str(error.value)
    with pytest.raises(MergeError, match=r"^shards 2 of 4, 4 of 4 are missing"):
        merged(reports[0], reports[2])
    assert len(merged(*reports).evaluations) == 4


def test_a_missing_shard_of_one_device_is_named(make_evaluation: Make) -> None:
    """Where two types of GPUs were gated in two shards each, the device of the missing one is told."""
    reports = [
        shard(based(make_evaluation(signature=f"s{n}", device="cuda:0"), environment=device), n, 2)
        for device in (H200, A100)
        for n in (1, 2)
    ]
    with pytest.raises(MergeError, match=r"^shard 2 of 2 on NVIDIA A100 is missing"):
        merged(*reports[:3])
    whole = merged(*reports)
    assert {one.device_name for one in whole.evaluations} == {"NVIDIA H200", "NVIDIA A100"}


def gpu_shard(make: Make, environment: Environment, number: int, count: int = 2) -> SessionReport:
    case = make(signature=f"s{number}", device="cuda:0", implementation="cuda")
    return shard(based(case, environment=environment), number, count)


def cpu_shard(make: Make, number: int, *, seed: int, absent: bool = False) -> SessionReport:
    """One of two, on a machine without a GPU; `absent` adds a case that wants one."""
    cases = [make(signature=f"c{number}")]
    if absent:
        cases.append(make_absent(make, f"s{number}"))
    return shard(replace(report_of(*cases, exit_status=0), seed=seed), number, 2)


def make_absent(make: Make, signature: str = "s") -> Evaluation:
    return make(
        Status.SKIPPED, signature=signature, device="cuda:0", implementation="cuda", reason=Reason.DEVICE_ABSENT,
        message="no cuda device", times_ns=None,
    )  # fmt: skip


def test_shards_of_one_type_do_not_stand_for_those_of_another(make_evaluation: Make) -> None:
    """Part 1 of one model of GPU and part 2 of another are two suites, each with a shard missing."""
    first, second = gpu_shard(make_evaluation, H200, 1), gpu_shard(make_evaluation, A100, 2)
    with pytest.raises(
        MergeError,
        match=r"^shards 1 of 2 on NVIDIA A100, 2 of 2 on NVIDIA H200 are missing; .*\n.*merge all 4 reports",
    ):
        merged(first, second)
    rest = gpu_shard(make_evaluation, H200, 2), gpu_shard(make_evaluation, A100, 1)
    assert len(merged(first, second, *rest).evaluations) == 4


def test_a_shard_that_wants_no_gpu_may_be_of_any_type(make_evaluation: Make) -> None:
    """Parts of CPU cases, or without cases, fill what a type of GPU lacks: one each, and none is over."""
    types = gpu_shard(make_evaluation, H200, 1), gpu_shard(make_evaluation, A100, 1)
    plain = cpu_shard(make_evaluation, 2, seed=1)
    bare = shard(replace(report_of(exit_status=5), environments=(), seed=2, empty=True, ci=True), 2, 2)
    assert merged(*types, plain, bare).exit_status == 0
    with pytest.raises(
        MergeError, match=r"^shard 2 of 2 on NVIDIA H200 or on NVIDIA A100 is missing; .*\n.*all 4 reports"
    ):
        merged(*types, plain)
    with pytest.raises(MergeError, match=r"^shard 1 of 2 is missing"):
        merged(gpu_shard(make_evaluation, H200, 1), plain, bare)


def test_a_shard_that_left_out_cases_for_want_of_a_gpu_stands_for_none(make_evaluation: Make) -> None:
    """Machines without a GPU have a suite of their own, though its CPU cases passed."""
    whole = [gpu_shard(make_evaluation, H200, number) for number in (1, 2)]
    without = [cpu_shard(make_evaluation, number, seed=number, absent=number == 2) for number in (1, 2)]
    assert merged(*whole, *without).exit_status == 0
    assert merged(*without).exit_status == 0
    with pytest.raises(MergeError, match=r"^shard 2 of 2 on NVIDIA H200 is missing"):
        merged(whole[0], *without)
    with pytest.raises(
        MergeError, match=r"^shards 1 of 2 on a machine without a GPU, 2 of 2 on NVIDIA H200 are missing"
    ):
        merged(whole[0], without[1])


def test_reports_that_were_expected_and_are_not_there(make_evaluation: Make) -> None:
    """A run without a number is missed by count alone; the same report twice counts once."""
    one = report_of(make_evaluation())
    with pytest.raises(MergeError, match=r"^1 different report instead of 2: a\.json\n"):
        merged(one, one, expected=2)
    assert merged(one, one, expected=1).evaluations == one.evaluations


def test_a_run_that_is_there_alone_and_in_a_merged_report_is_refused(make_evaluation: Make) -> None:
    """It would count twice among those that are expected; merged reports that share no run count with all theirs."""
    x, y, z = (replace(report_of(make_evaluation(signature=name), exit_status=0), seed=7) for name in "xyz")
    both = merged(x, y)
    for reports in ((both, x), (x, both), (both, x, z)):
        with pytest.raises(
            MergeError, match=r"^[ab]\.json: its run is in [ab]\.json too\n→ leave one of the two"
        ):
            merged(*reports, expected=3)
    with pytest.raises(MergeError, match=r"^b\.json: all its runs are in a\.json too"):
        merged(merged(x, y, z), both)
    assert len(merged(both, z, expected=3).merged) == 3
    with pytest.raises(MergeError, match=r"^3 different reports instead of 4"):
        merged(both, merged(y, z), expected=4)


def test_runs_that_look_alike_are_two(make_evaluation: Make) -> None:
    """The same seed, second and devices in two jobs: what they found tells them apart."""
    first, second = (report_of(make_evaluation(signature=name), exit_status=0) for name in "ab")
    assert len(merged(first, second, expected=2).merged) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"exit_status": 2}, r"^b\.json: its run was ended with exit code 2"),
        ({"stopped": True, "exit_status": 1}, r"^b\.json: its run was stopped by -x or --maxfail"),
        ({"strict": True}, "different settings of --cgins-strict: False in a.json, True in b.json"),
        ({"cgins": "9"}, "different versions of pytest-cgins: 1 in a.json, 9 in b.json"),
        ({"base_revision": "f00 (main)"}, "compared with different revisions: .*f00"),
        ({"shard": Shard(number=1, count=3)}, "different numbers of shards: 2 in a.json, 3 in b.json"),
        ({"shard": Shard(number=2, count=2, durations="f00")}, r"cut by different durations.*f00 in b\.json"),
    ],
)
def test_parts_of_different_wholes_are_refused(
    make_evaluation: Make, change: dict[str, object], told: str
) -> None:
    """What was ended early, or judged by other rules, does not add up."""
    first = shard(replace(report_of(make_evaluation(signature="a")), base_revision=LABEL), 1, 2)
    second = shard(replace(first, evaluations=(make_evaluation(signature="b"),)), 2, 2)
    merged(first, second)
    with pytest.raises(MergeError, match=told):
        merged(first, replace(second, **change))  # type: ignore[arg-type]


def test_no_report_is_an_error() -> None:
    """Nothing is not a clean run."""
    with pytest.raises(MergeError, match="no report"):
        merge.merged([])


# ---- cases


def test_duplicates_are_errors_unless_they_are_identical(make_evaluation: Make) -> None:
    """The same case twice with other numbers names both files; the same evaluation in two reports counts once."""
    one = make_evaluation(share=0.25)
    first, second = report_of(one), replace(report_of(one), seed=8)
    assert merged(first, second).evaluations == (one,)
    other = replace(second, evaluations=(make_evaluation(share=0.5),))
    with pytest.raises(
        MergeError, match=r"^scale/cpu-cpp/tiny/f32-2x3-0001 is in a\.json and in b\.json, with diff"
    ):
        merged(first, other)


def test_two_types_of_gpus_have_a_case_each(make_evaluation: Make) -> None:
    """The name of the device tells them apart, in every format, and so do the kernels' rows."""
    cuda = make_evaluation(device="cuda:0", implementation="cuda")
    slow = replace(cuda, seconds=9.0)
    whole = merged(based(cuda), based(slow, environment=A100))
    name = "scale/cuda/tiny/f32-2x3-0001"
    labels = [f"{name} on NVIDIA A100", f"{name} on NVIDIA H200"]
    assert [one.label for one in whole.evaluations] == labels
    assert [one.device_name for one in whole.environments] == ["NVIDIA A100", "NVIDIA H200"]
    for format_ in ("terminal", "markdown", "pull-request"):
        assert all(label in formats.FORMATS[format_](whole) for label in labels), format_
    assert "cuda (NVIDIA A100)" in formats.FORMATS["markdown"](whole)
    assert formats.FORMATS["junit"](whole).count('name="tiny/f32-2x3-0001 on NVIDIA') == 2
    third = replace(based(make_evaluation(signature="z", device="cuda:0")), seed=9)
    assert [one.label for one in merged(whole, third).evaluations] == [
        "scale/cuda-cpp/tiny/z on NVIDIA H200",
        *labels,
    ]


def test_a_case_skipped_for_want_of_its_device_yields(make_evaluation: Make) -> None:
    """A host without a GPU skips what another one gates; skipped by both, it is there once."""
    absent = make_evaluation(
        Status.SKIPPED, device="cuda:0", reason=Reason.DEVICE_ABSENT, message="no GPU", times_ns=None
    )
    ran = make_evaluation(device="cuda:0")
    assert merged(report_of(absent), based(ran)).evaluations == (ran,)
    assert merged(report_of(absent), report_of(replace(absent, seconds=3.0))).evaluations == (absent,)


def test_what_speaks_against_the_whole_adds_up(make_evaluation: Make) -> None:
    """Missing cases and stale evidence of any run fail in CI; one that gated something makes the whole not empty."""
    skipped = make_evaluation(Status.SKIPPED, signature="b", times_ns=None)
    first = replace(report_of(make_evaluation(), exit_status=0), ci=True)
    second = replace(report_of(skipped, exit_status=5), ci=True, empty=True)
    assert merged(first, second).exit_status == 0
    assert not merged(first, second).empty
    assert merged(first, replace(second, missing=("x",))).exit_status == 1
    assert merged(first, replace(second, missing=("x",), told_only=True)).exit_status == 1
    told = [replace(one, told_only=True) for one in (first, replace(second, missing=("x",)))]
    assert merged(*told).exit_status == 0
    assert merged(second).exit_status == 5


def test_a_lost_device_is_not_made_good_by_another_run(make_evaluation: Make) -> None:
    """A run in CI whose cases were all skipped for want of the GPU: exit 5, whatever others gated, merged twice or in shards."""
    lost = replace(report_of(make_absent(make_evaluation, "s2"), exit_status=5), ci=True, empty=True)
    case = make_evaluation(signature="s2", device="cuda:0", implementation="cuda")
    good = replace(based(case, environment=A100), ci=True)
    whole = merged(good, lost, expected=2)
    assert (whole.exit_status, whole.empty, whole.evaluations) == (5, False, (case,))
    other = replace(report_of(make_evaluation(), exit_status=0), seed=9)
    assert merged(whole, other).exit_status == 5
    assert merged(gpu_shard(make_evaluation, H200, 1), shard(lost, 2, 2)).exit_status == 5
    wrong = report_of(make_evaluation(Status.INCORRECT, times_ns=None), exit_status=1)
    assert merged(lost, wrong).exit_status == 1


def test_a_run_that_lost_no_device_gives_way(make_evaluation: Make) -> None:
    """A host without a GPU that gated its CPU cases is fine, and so is a shard without cases."""
    case = make_evaluation(signature="s2", device="cuda:0", implementation="cuda")
    good = replace(based(case), ci=True)
    hosted = report_of(make_evaluation(), make_absent(make_evaluation, "s2"), exit_status=0)
    assert merged(good, replace(hosted, ci=True)).exit_status == 0
    bare = replace(report_of(exit_status=5), ci=True, empty=True)
    assert merged(shard(good, 1, 2), shard(bare, 2, 2)).exit_status == 0


@pytest.mark.parametrize(("statuses", "besides", "code"), [
    ([Status.PASSED], 0, 0), ([Status.PASSED], 1, 1), ([Status.PASSED], 6, 6),
    ([Status.INFRASTRUCTURE], 6, 6), ([Status.INFRASTRUCTURE, Status.INCORRECT], 1, 1),
    ([Status.INFRASTRUCTURE], 1, 1), ([], 5, 5),
])  # fmt: skip
def test_exit_codes(make_evaluation: Make, statuses: list[Status], besides: int, code: int) -> None:
    """A kernel's failure counts more than a lost device; what failed a run besides its cases fails the whole."""
    cases = [make_evaluation(status, signature=f"s{n}", times_ns=None) for n, status in enumerate(statuses)]
    assert merged(report_of(*cases, exit_status=besides)).exit_status == code


# ---- verdicts on time

CLEAR = [0.08 + 1e-3 * (i % 3) for i in range(60)]
"""Slower in every block: proven as soon as E is large enough, and no block is taken after that."""


def test_n_of_one_suite_is_shared_and_that_of_others_added(make_evaluation: Make) -> None:
    """Numbered shards and runs with the same --cgins-suite-tests have one N; the rest adds up, devices too."""

    def run(name: str, tests: int) -> SessionReport:
        return based(timed(make_evaluation, name, [0.0] * 40, tests=tests))

    cut = [shard(run(f"s{n}", 30), n, 2) for n in (1, 2)]
    assert merge.suite_tests(cut) == 30
    other_device = [replace(one, environments=(A100,)) for one in cut]
    assert merge.suite_tests([*cut, *other_device]) == 60
    given = [replace(run(name, 50), suite_tests=50) for name in "ab"]
    assert merge.suite_tests(given) == 50
    assert merge.suite_tests([run("a", 3), run("b", 4)]) == 7
    assert merge.suite_tests([*cut, *given, run("c", 5)]) == 85
    assert merge.suite_tests([report_of(make_evaluation())]) == 0


def test_an_unchanged_n_leaves_every_verdict_alone(make_evaluation: Make) -> None:
    """Shards that knew N of the suite are taken as they are, letter by letter."""
    cases = [timed(make_evaluation, f"s{n}", CLEAR if n else [0.0] * 40, tests=30) for n in (0, 1)]
    whole = merged(*(shard(based(one, exit_status=1), n, 2) for n, one in enumerate(cases, 1)))
    assert whole.evaluations == tuple(cases)


def test_a_slowdown_that_is_not_proven_among_more_tests_is_undecided(make_evaluation: Make) -> None:
    """Two suites of one test each: what just passed 1/α does not pass 2/α; the message says what it was, and the remedy."""
    one = timed(make_evaluation, "a", CLEAR, tests=1)
    assert one.verdict.status is Status.SLOWER
    other = timed(make_evaluation, "b", [0.0] * 40, tests=400)
    whole = merged(based(one, exit_status=1), based(other))
    again = whole.evaluations[0]
    assert (again.verdict.status, again.verdict.reason) == (Status.INCONCLUSIVE, Reason.NOISE)
    assert "before the merge, as one of 1 test, it was SLOWER: 1.08" in again.verdict.message
    assert "rerun each part with --cgins-suite-tests=401" in again.verdict.message
    assert again.measurement is not None
    (test,) = again.measurement.comparisons
    assert (test.tests, test.outcome) == (401, "inconclusive")
    assert whole.exit_status == 0
    assert again.verdict.numbers["log_e_threshold"] > one.verdict.numbers["log_e_threshold"]
    assert again.measurement.confirmation == one.measurement.confirmation  # type: ignore[union-attr]


def test_what_else_failed_a_run_still_does(make_evaluation: Make) -> None:
    """A case explained the exit code until it was decided again: the user's own test that failed stays, in a second merge too."""
    slow = replace(based(timed(make_evaluation, "a", CLEAR, tests=1), exit_status=1), other_failures=1)
    other = based(timed(make_evaluation, "b", [0.0] * 40, tests=400))
    whole = merged(slow, other)
    assert whole.evaluations[0].verdict.status is Status.INCONCLUSIVE
    assert (whole.exit_status, whole.other_failures) == (1, 1)
    enough = replace(based(timed(make_evaluation, "a", CLEAR, tests=100), exit_status=1), other_failures=1)
    once = merged(enough, based(timed(make_evaluation, "c", [0.0] * 40, tests=1)))
    assert once.evaluations[0].verdict.status is Status.SLOWER
    many = based(timed(make_evaluation, "b", [0.0] * 40, tests=10**6))
    assert merged(once, many).evaluations[0].verdict.status is Status.INCONCLUSIVE
    assert merged(once, many).exit_status == 1


def test_a_slowdown_with_enough_evidence_stays(make_evaluation: Make) -> None:
    """It fails as before; figures that hang on N are those of the merged suite, in numbers and message."""
    one = timed(make_evaluation, "a", CLEAR, tests=100)
    whole = merged(based(one, exit_status=1), based(timed(make_evaluation, "b", [0.0] * 40, tests=1)))
    again = whole.evaluations[0]
    assert (again.verdict.status, whole.exit_status) == (Status.SLOWER, 1)
    assert again.measurement is not None
    assert "1 in 10,100 proves it" in again.verdict.message
    assert "by itself" not in again.verdict.message
    assert again.verdict.numbers["tests"] == 101
    expected = timing_numbers(again.measurement)
    assert {name: again.verdict.numbers[name] for name in expected} == expected


def test_a_missed_floor_is_decided_again(make_evaluation: Make) -> None:
    """A kernel below its declared floor, without a base: undecided among more tests, and not taken for anything else."""
    one = timed(make_evaluation, "a", CLEAR, tests=1, floor=True)
    assert one.verdict.status is Status.BELOW_FLOOR
    whole = merged(based(one, exit_status=1), based(timed(make_evaluation, "b", [0.0] * 40, tests=400)))
    assert whole.evaluations[0].verdict.status is Status.INCONCLUSIVE


def test_a_weak_case_stays_weak(make_evaluation: Make) -> None:
    """What failed by its time alone is weak again where the time is no proof any more."""
    one = timed(make_evaluation, "a", CLEAR, tests=1, accepted=("zeros",))
    assert one.verdict.status is Status.SLOWER
    assert "also no-power" in one.verdict.message
    other = timed(make_evaluation, "b", [0.0] * 40, tests=400, accepted=("zeros",))
    whole = merged(based(one, exit_status=1), based(other))
    assert [one.verdict.status for one in whole.evaluations] == [Status.WEAK, Status.WEAK]
    assert "would also accept zeros" in whole.evaluations[0].verdict.message
    assert whole.evaluations[1].verdict.message == other.verdict.message


def test_what_other_reasons_decided_stands(make_evaluation: Make) -> None:
    """A kernel that was wrong after it had been timed stays wrong, and only its figures change."""
    one = timed(make_evaluation, "a", CLEAR, tests=1)
    numbers = {"log_e_threshold": 1.0, "error_share_of_tolerance": 3.0}
    wrong = replace(
        one.verdict, status=Status.SUSPECT, reason=Reason.WRONG_AFTER_TIMING, message="m", numbers=numbers
    )
    whole = merged(
        based(replace(one, verdict=wrong), exit_status=1),
        based(timed(make_evaluation, "b", [0.0] * 40, tests=400)),
    )
    again = whole.evaluations[0].verdict
    assert (again.status, again.message) == (Status.SUSPECT, "m")
    assert set(again.numbers) == set(numbers)
    assert again.numbers["log_e_threshold"] > 1.0


def test_what_the_document_does_not_have_is_refused(make_evaluation: Make) -> None:
    """E-values that are not those of the blocks, blocks after the end, and a verdict that times do not explain."""
    one = timed(make_evaluation, "a", CLEAR, tests=1)
    many = based(timed(make_evaluation, "b", [0.0] * 40, tests=400))
    assert one.measurement is not None
    (test,) = one.measurement.comparisons

    def with_test(**fields: object) -> SessionReport:
        changed: Comparison = replace(test, **fields)  # type: ignore[arg-type]
        timing = replace(one.measurement, comparisons=(changed,))  # type: ignore[type-var]
        return based(replace(one, measurement=timing), exit_status=1)  # type: ignore[arg-type]

    for fields, told in (
        ({"log_e_slower": 99.0}, "its log_e_slower is not that of its blocks"),
        ({"most_blocks": 3}, "the test ended after 3 blocks"),
        ({"alpha": 2.0}, "alpha is 2.0"),
    ):
        with pytest.raises(
            MergeError, match=f"scale/.*cannot be judged again as one of 401 tests: {told}"
        ) as error:
            merged(with_test(**fields), many)
        assert "--cgins-suite-tests=401" in str(error.value)
    strange = replace(one, verdict=replace(one.verdict, status=Status.SAME, reason=Reason.NOT_SLOWER))
    with pytest.raises(MergeError, match=r"it is SAME \(not-slower\), and its times alone make it SLOWER"):
        merged(based(strange), many)


def test_sums_are_judged_again_on_those_of_the_report(make_evaluation: Make) -> None:
    """What a few prove as one test, they leave open among 401; an e-value that is not theirs is refused."""
    others = based(timed(make_evaluation, "b", [0.0] * 40, tests=400))
    one = timed(make_evaluation, "a", [0.0] * 40, tests=1, sums=[0.8] * 64)
    assert one.verdict.status is Status.SLOWER
    (again,) = [
        found for found in merged(based(one, exit_status=1), others).evaluations if found.case == one.case
    ]
    assert again.verdict.status is Status.INCONCLUSIVE
    assert "the sum of 36 calls" in again.verdict.message
    assert again.measurement is not None
    sums = again.measurement.comparisons[0].sums
    assert sums is not None
    assert sums.outcome == "maybe-slower"
    assert one.measurement is not None
    (test,) = one.measurement.comparisons
    assert test.sums is not None
    forged = replace(test, sums=replace(test.sums, log_e_slower=99.0))
    timing = replace(one.measurement, comparisons=(forged,))
    with pytest.raises(MergeError, match="the log_e_slower of its sums is not that of its sums"):
        merged(based(replace(one, measurement=timing), exit_status=1), others)


def test_states_that_lasted_still_did(make_evaluation: Make) -> None:
    """What further blocks showed is in the report, and the same blocks prove no more in a greater suite."""
    one = timed(make_evaluation, "a", CLEAR, tests=1, runs=0.001)
    assert one.verdict.status is Status.INCONCLUSIVE
    whole = merged(based(one), based(timed(make_evaluation, "b", [0.0] * 40, tests=400)))
    again = whole.evaluations[0]
    assert again.verdict.status is Status.INCONCLUSIVE
    assert again.measurement is not None
    assert again.measurement.comparisons[0].runs == 0.001


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(-0.1, 0.1), st.integers(0, 99), st.integers(1, 500), st.integers(1, 10**6))
def test_verdicts_are_those_of_the_gate_on_the_same_blocks(
    make_evaluation: Make, middle: float, seed: int, tests: int, others: int
) -> None:
    """Whatever the times are: test and verdict are what the gate makes of these blocks with the greater N."""
    one = timed(make_evaluation, "a", blocks(middle, seed=seed), tests=tests)
    whole = merged(based(one), based(timed(make_evaluation, "b", [0.0] * 40, tests=others)))
    again, before = whole.evaluations[0], one.measurement
    assert before is not None
    (first,) = before.comparisons
    rule = replace(RULE, tests=tests + others)
    timing = replace(before, comparisons=(compared("base", first.log_ratios, rule=rule),))
    assert again.measurement == timing
    assert one.correctness is not None
    expected = decide_timing(
        gate.decide(one.correctness, timing), timing, base_state="none", base_note="", gate=TimingGate(),
        base_label=LABEL, kernel="scale",
    )  # fmt: skip
    assert (again.verdict.status, again.verdict.reason) == (expected.status, expected.reason)
    assert again.verdict.numbers == expected.numbers
    assert again.verdict.message.startswith(expected.message)


# ---- the command


def test_the_command_writes_and_ends_as_the_gate(
    make_evaluation: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, the merged report, and its exit code; what does not add up ends in 2 and writes nothing."""
    files = [tmp_path / f"{n}.json" for n in (1, 2)]
    for n, file in enumerate(files, 1):
        status = Status.INCORRECT if n == 2 else Status.PASSED
        document.write(shard(report_of(make_evaluation(status, signature=f"s{n}")), n, 2), file)
    out = tmp_path / "deep" / "all.json"
    assert cli.main(["merge", *map(str, files), f"--out={out}"]) == 1
    assert capsys.readouterr().out == "2 runs: 1 passed, 1 failed, 0 errors, 0 skipped; exit code 1\n"
    assert json.loads(out.read_text())["exit_status"] == 1
    out.unlink()
    assert cli.main(["merge", str(files[0]), f"--out={out}"]) == 2
    told = capsys.readouterr().err
    assert re.match(
        r"cgins: shard 2 of 2 is missing; there are .*1\.json \(shard 1 of 2\)\n→ run what is missing", told
    )
    assert not out.exists()


def test_the_command_tells_what_no_case_shows(
    make_evaluation: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of a run that lost its device, and of one in which other tests failed."""
    lost = replace(report_of(make_absent(make_evaluation), exit_status=5), ci=True, empty=True)
    failed = replace(report_of(make_evaluation(), exit_status=1), other_failures=2)
    files = [str(tmp_path / name) for name in ("lost.json", "failed.json")]
    for report, file in zip((lost, failed), files, strict=True):
        document.write(report, Path(file))
    assert cli.main(["merge", *files, f"--out={tmp_path / 'all.json'}"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{files[0]}: exit code 5: it gated nothing, because no device of its cases was present"
    assert told[1] == f"{files[1]}: 2 failures outside of cases"


@pytest.mark.parametrize("text", ["[" * 200_000, '{"version":' + "[" * 200_000, "[" * 300 + "]" * 300])
def test_a_file_that_is_nested_too_deeply_is_no_report(tmp_path: Path, text: str) -> None:
    """It is told as any other file that is none, and not as a fault of ours."""
    file = tmp_path / "deep.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"deep\.json is not a report"):
        document.load(file)
