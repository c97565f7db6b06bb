"""Evaluations as reports bring them in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative

from pytest_cgins.app.session.results import Results
from pytest_cgins.core import documents
from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.core.verdict import Status

Make = Callable[..., Evaluation]


def report(
    *evaluations: Evaluation, outcome: str = "passed", node: str = "n", excused: bool = False
) -> pytest.TestReport:
    made = pytest.TestReport(node, ("f", 0, "d"), {}, outcome, None, "call")  # type: ignore[arg-type]
    # As xdist would send it.
    made.__dict__["cgins"] = json.loads(json.dumps([documents.dump_python(one) for one in evaluations]))
    made.__dict__["cgins_excused"] = excused
    return made


def test_worse_of_two_evaluations_of_a_case_counts(make_evaluation: Make) -> None:
    """A case that passed as an item and failed in a user's test has failed, in either order."""
    good, bad = make_evaluation(), make_evaluation(Status.INCORRECT)
    for pair in ((good, bad), (bad, good)):
        results = Results()
        for evaluation in pair:
            results.add(report(evaluation))
        assert results.evaluations == (bad,)


def test_files_do_not_share_cases(make_evaluation: Make) -> None:
    """Two cgins.yaml that name a case alike have two cases."""
    results = Results()
    results.add(report(make_evaluation()))
    results.add(report(replace(make_evaluation(), config="second/cgins.yaml")))
    assert len(results.evaluations) == 2


@pytest.mark.parametrize(
    ("status", "others_fail", "expected"),
    [
        (Status.TRACE_DRIFT, False, True),
        (Status.INFRASTRUCTURE, False, True),
        (Status.INFRASTRUCTURE, True, False),
        (Status.INCORRECT, False, False),
    ],
)
def test_blame(make_evaluation: Make, status: Status, others_fail: bool, expected: bool) -> None:
    """Only if every failure is a drifted trace or a lost device does nobody's kernel bear the blame."""
    results = Results()
    results.add(report(make_evaluation(status), outcome="failed"))
    if others_fail:
        results.add(report(outcome="failed", node="another"))
    assert results.only_infrastructure_failed is expected


def test_blame_follows_the_item_through_its_phases(make_evaluation: Make) -> None:
    """A test that evaluated during setup and fails later in its call is judged by that evaluation."""
    results = Results()
    results.add(report(make_evaluation(Status.TRACE_DRIFT)))
    results.add(report(outcome="failed"))
    assert results.only_infrastructure_failed


@pytest.mark.parametrize(("node", "expected"), [("n", True), ("another", False)])
def test_an_excused_failure_has_no_evaluation(node: str, expected: bool) -> None:
    """A fixture that lacks its device is nobody's fault, and excuses no other test."""
    results = Results()
    results.add(report(outcome="failed", excused=True))
    results.add(report(outcome="failed", node=node))
    assert results.only_infrastructure_failed is expected


def test_nothing_failed_is_nobody_s_fault() -> None:
    """Without a failure there is nothing to excuse."""
    assert not Results().only_infrastructure_failed


def test_environments_are_kept_once_a_device() -> None:
    """Workers of one machine report the same devices."""
    cpu = Environment(device="cpu", device_name="x", python="3", torch="2")
    cuda = Environment(device="cuda", device_name="y", python="3", torch="2")
    results = Results()
    results.add_environments((cuda, cpu))
    results.add_environments((cpu,))
    assert results.environments == (cpu, cuda)


def test_a_repeated_cause_is_one_line_in_pytests_list(make_evaluation: Make) -> None:
    """The second failure of a cause names the first; what else the crash tells of it stays."""
    results = Results()
    reports = []
    for name in ("a", "b", "c"):
        failed = make_evaluation(Status.INCORRECT, signature=name, message="4 elements are wrong\n\x1b[2J")
        if name == "c":
            failed = replace(failed, verdict=replace(failed.verdict, message="another shape"))
        one = report(failed, outcome="failed", node=f"cgins.yaml::{name}")
        one.__dict__["cgins_own"] = True
        crash = ReprFileLocation("outcome.py", 7, "long\ntext")
        one.longrepr = ReprExceptionInfo(reprtraceback=ReprTracebackNative(["long\n"]), reprcrash=crash)
        results.add(one)
        reports.append(one)
    results.shorten_repeats()
    assert [one.longreprtext for one in reports] == [
        "long",
        "INCORRECT (ok): 4 elements are wrong [same failure as cgins.yaml::a]",
        "long",
    ]
    assert reports[1].longrepr.reprcrash.message == reports[1].longreprtext  # type: ignore[union-attr]
