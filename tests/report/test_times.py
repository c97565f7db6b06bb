"""Counts, medians and lists of times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import reports
from timings import LABEL, RULE, blocks, compared, measured

from pytest_cgins.core.measurement import Clocks, Comparison, Measurement, Roofline
from pytest_cgins.core.number_text import slowdown
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.timing_verdict import NOT_HELD
from pytest_cgins.report import failure, markdown, summary, tables, terminal, times

Make = Callable[..., Evaluation]
SLOW, SAME, FAST, OPEN = 0.08, 0.0, -0.08, 0.033


def base(middle: float, sigma: float = 0.01, *, seed: int = 1, most: int = 64) -> Comparison:
    return compared("base", blocks(middle, sigma, seed=seed, most=most))


PROVEN = measured(base(SLOW), again=[base(SLOW)])
UNCONFIRMED = measured(base(SLOW), again=[base(SAME)])
NOISY = measured(base(OPEN, 0.2))


def report_of(*evaluations: Evaluation, revision: str = LABEL) -> SessionReport:
    return reports.report_of(*evaluations, base_revision=revision)


def section(*evaluations: Evaluation, verbosity: int = 0) -> str:
    return terminal.render(report_of(*evaluations), width=100, colour=False, verbosity=verbosity)


def suite(make: Make, *timings: tuple[Status, Measurement], fail_on: str = "regression") -> list[Evaluation]:
    return [
        make(status, signature=f"s{i}", timing=timing, fail_on=fail_on)
        for i, (status, timing) in enumerate(timings)
    ]


def test_the_gate_counts_what_tests_found(make_evaluation: Make) -> None:
    """Each case with a test is the same, faster, slower or undecided, also where its status speaks of something else."""
    evaluations = suite(
        make_evaluation,
        (Status.SLOWER, PROVEN),
        (Status.WEAK, measured(base(SAME))),
        (Status.SAME, measured(base(SAME))),
        (Status.FASTER, measured(base(FAST))),
        (Status.INCONCLUSIVE, UNCONFIRMED),
        (Status.INCONCLUSIVE, NOISY),
        (Status.NEW, measured()),
    )
    gate = times.time_gate(report_of(*evaluations))
    assert gate == times.TimeGate(
        label=LABEL, cases=6, same=2, faster=1, slower=1, undecided=2, false_alarms=0.01
    )
    assert times.time_gate(report_of(evaluations[-1])) is None
    line = f"6 cases timed against {LABEL}: 2 same, 1 faster, 1 slower, 2 undecided; false alarms in the whole suite: at most 1%"
    assert f"{line}\n" in section(*evaluations, verbosity=-1)
    assert line in markdown.render(report_of(*evaluations))


def test_the_label_is_that_of_the_measured_commit(make_evaluation: Make) -> None:
    """A report that was merged from runs against several commits, or that knows of none, names those that were measured."""
    one, two = suite(
        make_evaluation, (Status.SAME, measured(base(SAME))), (Status.SAME, measured(base(SAME)))
    )
    assert two.measurement is not None
    other = replace(two, measurement=replace(two.measurement, base_revision="f" * 40))
    for evaluations, revision, label in (
        ([one], "", "1a2b3c4d5e"),
        ([one, other], LABEL, "1a2b3c4d5e, ffffffffff"),
        ([other], LABEL, "ffffffffff"),
    ):
        gate = times.time_gate(report_of(*evaluations, revision=revision))
        assert gate is not None
        assert gate.label == label


def test_suites_that_were_merged_add_up(make_evaluation: Make) -> None:
    """Three reports of one test each, at 1% each, are wrong together in at most 3%."""
    rule = replace(RULE, tests=1)
    alone = measured(compared("base", blocks(SAME), rule=rule))
    gate = times.time_gate(report_of(*suite(make_evaluation, *[(Status.SAME, alone)] * 3)))
    assert gate is not None
    assert gate.false_alarms == pytest.approx(0.03)


def test_a_row_has_the_median_and_the_worst(make_evaluation: Make) -> None:
    """Ratios to the base over the cases that have one, and the median share of the peak that bounds each."""
    roofline = Roofline(
        nbytes=8, flops=8, source="signature", peak_bytes_per_s=1e12, peak_flops_per_s=1e13,
        share_of_bandwidth=0.6, share_of_compute=0.1, bound="memory",
    )  # fmt: skip
    bound = [replace(measured(), roofline=replace(roofline, bound=name)) for name in ("memory", "compute")]
    compared_ones = [measured(base(middle, 0.0)) for middle in (SAME, SLOW, FAST)]
    timed = suite(make_evaluation, *((Status.PASSED, one) for one in [*bound, *compared_ones]))
    ((*_, base_cell, _, _, peak),) = tables.kernels(report_of(*timed)).rows
    ratios = [one.comparisons[0].ratio for one in compared_ones]
    assert base_cell.number == ratios[0]
    assert base_cell.text == f"{slowdown(ratios[0])} (worst {slowdown(ratios[1])})"
    assert peak.number == pytest.approx((0.6 + 0.1) / 2)
    ((*_, base_cell, _, _, peak),) = tables.kernels(report_of(make_evaluation())).rows
    assert (base_cell, peak) == (tables.EMPTY, tables.EMPTY)


@pytest.mark.parametrize(
    ("status", "fail_on", "outcome"),
    [
        (Status.SLOWER, "regression", "fail"),
        (Status.SLOWER, "inconclusive", "fail"),
        (Status.SLOWER, "never", "pass"),
        (Status.BELOW_FLOOR, "regression", "fail"),
        (Status.BELOW_FLOOR, "never", "pass"),
        (Status.INCONCLUSIVE, "regression", "pass"),
        (Status.INCONCLUSIVE, "inconclusive", "fail"),
        (Status.INCONCLUSIVE, "never", "pass"),
        (Status.INCORRECT, "never", "fail"),
        (Status.TRACE_DRIFT, "never", "error"),
        (Status.SKIPPED, "inconclusive", "skip"),
        (Status.SAME, "inconclusive", "pass"),
    ],
)
def test_fail_on_decides_what_a_time_means(
    make_evaluation: Make, status: Status, fail_on: str, outcome: str
) -> None:
    """It travels with the evaluation, so that whoever reads the JSON decides alike; --cgins-strict is another matter."""
    evaluation = make_evaluation(status, fail_on=fail_on)
    assert summary.outcome(evaluation, strict=False) == outcome
    assert summary.outcome(evaluation, strict=True) == outcome


def test_what_is_let_pass_is_loud(make_evaluation: Make) -> None:
    """Under gate.fail_on: never a proven slowdown has a line of its own, also where the case is weak."""
    evaluations = suite(make_evaluation, (Status.SLOWER, PROVEN), (Status.WEAK, PROVEN), fail_on="never")
    assert times.let_pass(evaluations) == tuple(evaluations)
    assert times.let_pass([replace(one, fail_on="regression") for one in evaluations]) == ()
    assert times.let_pass(suite(make_evaluation, (Status.INCONCLUSIVE, NOISY), fail_on="never")) == ()
    text = section(*evaluations)
    assert text.count("\nslower, passes because of gate.fail_on scale/cpu-cpp/tiny/s") == 2
    assert "### Slower, but passed" in markdown.render(report_of(*evaluations))


def test_undecided_cases_say_what_they_could_have_seen(make_evaluation: Make) -> None:
    """Those that seem slowest come first; remedies are left to the message; what fails is listed once, as a failure."""
    said = "undecided after 64 blocks: +3%\nblock noise is 6%\n→ take more"
    noisy = measured(base(OPEN, 0.2))
    slower = measured(base(0.2, 0.5, seed=3))
    one, two = (
        make_evaluation(Status.INCONCLUSIVE, reason=Reason.NOISE, message=said, signature=name, timing=timing)
        for name, timing in (("a", noisy), ("b", slower))
    )
    assert noisy.comparisons[0].ratio < slower.comparisons[0].ratio
    assert times.undecided([one, make_evaluation(), two]) == (two, one)
    text = section(one, two)
    line = "INCONCLUSIVE scale/cpu-cpp/tiny/a (noise): undecided after 64 blocks: +3%; block noise is 6%\n"
    assert line in text
    assert text.count("INCONCLUSIVE scale") == 2
    assert section(replace(one, fail_on="inconclusive")).count("INCONCLUSIVE scale") == 1
    assert "### Undecided times" in markdown.render(report_of(one, two))


def test_lists_of_times_are_cut_and_say_so(make_evaluation: Make) -> None:
    """Twenty of a kind, then a count; -v shows all, -q none."""
    many = suite(make_evaluation, *[(Status.INCONCLUSIVE, NOISY)] * 23)
    assert section(*many).count("\nINCONCLUSIVE scale") == 20
    assert "... 3 more undecided cases: -v lists them all\n" in section(*many)
    assert section(*many, verbosity=1).count("\nINCONCLUSIVE scale") == 23
    assert "INCONCLUSIVE scale" not in section(*many, verbosity=-1)


def test_probably_slower_are_those_that_e_bh_adds(make_evaluation: Make) -> None:
    """Beside proven ones less evidence is enough for the list; without them the same case is not in it."""
    some = compared("base", blocks(0.1, 0.001, most=64), rule=replace(RULE, most_blocks=15))
    assert some.outcome == "inconclusive"
    likely = measured(some)
    proven, hint = (
        suite(make_evaluation, *[(Status.SLOWER, PROVEN)] * 8, (Status.INCONCLUSIVE, likely))[:8],
        None,
    )
    hint = make_evaluation(Status.INCONCLUSIVE, signature="hint", timing=likely)
    assert times.probably_slower([*proven, hint]) == (hint,)
    assert times.probably_slower([make_evaluation(Status.INCONCLUSIVE, signature="n", timing=NOISY)]) == ()
    text = section(*proven, hint)
    assert f"PROBABLY SLOWER {hint.case.name}: 1.1" in text
    assert "slower cases together, at most 10% are expected to be noise\n" in text
    assert "### Probably slower" in markdown.render(report_of(*proven, hint))


def test_a_fresh_process_that_denies_it_counts(make_evaluation: Make) -> None:
    """What a fresh process found not slower is not listed; where that one is undecided, both count."""
    evaluations = suite(make_evaluation, *[(Status.SLOWER, PROVEN)] * 3, (Status.INCONCLUSIVE, UNCONFIRMED))
    assert times.probably_slower(evaluations) == ()
    undecided = measured(base(SLOW), again=[compared("base", blocks(SLOW)[:6], rule=replace(RULE, tests=1))])
    evaluations[-1] = replace(evaluations[-1], measurement=undecided)
    assert times.probably_slower(evaluations) == (evaluations[-1],)
    unasked = suite(make_evaluation, (Status.INCONCLUSIVE, measured(base(SLOW))))
    assert times.probably_slower(unasked) == tuple(unasked)


def test_times_that_gate_nothing_are_told_once_with_a_count(make_evaluation: Make) -> None:
    """One line a reason, whatever the verbosity; new and unchanged kernels miss nothing."""
    told = [
        make_evaluation(signature=f"s{i}", timing=measured(), message=f"{NOT_HELD}no git repository")
        for i in range(3)
    ]
    weak = make_evaluation(
        Status.WEAK, signature="w", timing=measured(), message=f"zeros\ntime: {NOT_HELD}no git repository"
    )
    floored = make_evaluation(
        signature="f", timing=measured(compared("torch", blocks(0.0))), message=f"{NOT_HELD}g++ refused it"
    )
    new = make_evaluation(Status.NEW, signature="n", timing=measured(), message="nothing to hold it against")
    assert times.not_held([*told, weak, floored, new]) == (
        times.NotHeld(reason="no git repository", cases=4, floor=False),
        times.NotHeld(reason="g++ refused it", cases=1, floor=True),
    )
    for verbosity in (-1, 0, 1):
        text = section(*told, weak, floored, new, verbosity=verbosity)
        assert text.count("TIMES GATE NOTHING in 4 cases: no git repository\n") == 1
        assert text.count("COMPARED WITH TORCH ONLY in 1 case: g++ refused it\n") == 1
    assert (
        "<strong>Times gate nothing</strong>: <code>in 3 cases: no git repository</code>"
        in markdown.render(report_of(*told))
    )


def test_a_base_whose_answers_are_wrong_gates_nothing(make_evaluation: Make) -> None:
    """Its test counts nowhere, and the reason is told."""
    (one,) = suite(make_evaluation, (Status.PASSED, PROVEN))
    verdict = replace(
        one.verdict, reason=Reason.NOT_COMPARABLE, message="slower than a wrong base: why\nmore"
    )
    wrong = replace(one, verdict=verdict)
    assert times.time_gate(report_of(wrong)) is None
    assert times.probably_slower([wrong]) == ()
    assert times.not_held([wrong]) == (
        times.NotHeld(reason="slower than a wrong base: why", cases=1, floor=False),
    )


def test_clocks_are_told(make_evaluation: Make) -> None:
    """Blocks that were taken anew are counted over both processes; what throttled is named."""
    clocks = Clocks(sm_mhz=(1980,), redone=("a", "b"), throttled=("sw-power-cap",))
    assert PROVEN.confirmation is not None
    again = replace(PROVEN.confirmation, clocks=replace(clocks, redone=("c",)))
    one, two = suite(
        make_evaluation,
        (Status.SLOWER, replace(PROVEN, clocks=clocks, confirmation=again)),
        (Status.SAME, replace(measured(base(SAME)), clocks=replace(clocks, redone=()))),
    )
    assert times.clock_notes([one, two]) == times.ClockNotes(
        redone_blocks=3, redone_cases=1, throttled=(("sw-power-cap", 2),)
    )
    assert times.clock_notes([make_evaluation()]) is None
    text = section(one, two)
    assert "clocks: 3 blocks of 1 case timed again because the clock changed\n" in text
    assert "clocks: throttled while 2 cases were timed: sw-power-cap\n" in text
    assert "<strong>Clocks</strong>" in markdown.render(report_of(one, two))


def test_a_slowdown_s_message_says_where_to_look(make_evaluation: Make) -> None:
    """The revision to compare the sources with; the command of the page holds the base revision fixed."""
    one = make_evaluation(Status.SLOWER, reason=Reason.SLOWER_THAN_BASE, message="time +8%", timing=PROVEN)
    assert "\nlook    git diff 1a2b3c4d5e\nagain   again" in failure.message(one, command="again")
    assert "git diff" not in failure.message(
        make_evaluation(Status.INCORRECT, timing=PROVEN), command="again"
    )
    command = failure.command(one, report_of(one))
    assert f" --cgins-baseline={'1a2b3c4d5e' * 4} " in command
    assert "--cgins-baseline" not in failure.command(make_evaluation(timing=PROVEN), report_of(one))


def test_a_device_that_was_not_calibrated_is_told_once(make_evaluation: Make) -> None:
    """A line for each reason, with its cases and the remedy; none where it was, or nothing was held against a base."""
    why = "T was not calibrated"
    bare = replace(measured(base(SAME)), uncalibrated=why)
    evaluations = suite(
        make_evaluation, (Status.SAME, bare), (Status.SAME, bare), (Status.SAME, measured(base(SAME)))
    )
    assert times.uncalibrated(evaluations) == [(why, 2)]
    text = section(*evaluations)
    assert text.count("not calibrated") == 2
    assert (
        "not calibrated, in 2 cases: T was not calibrated; a spread between processes is assumed → cgins calibrate\n"
        in text
    )
    assert "not calibrated" not in section(*suite(make_evaluation, (Status.SAME, measured(base(SAME)))))
