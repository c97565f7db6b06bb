"""Missing cases, stale evidence and empty runs in terminal and summary."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from reports import report_of

from pytest_cgins.app.session.coverage import in_ci
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import markdown, notices, pull_request_comment, terminal
from pytest_cgins.report.exit_code import settled

Make = Callable[..., Evaluation]
BASE = "1a2b3c4d5e (merge-base with main)"


@pytest.fixture
def report(make_evaluation: Make) -> SessionReport:
    """Of one case that passed."""
    return report_of(make_evaluation(), environments=(), exit_status=0)


def told(report: SessionReport, verbosity: int = 0) -> list[str]:
    """The section without its table and its last line."""
    lines = terminal.render(report, width=200, colour=False, verbosity=verbosity).splitlines()
    return [line for line in lines if not re.match("kernel |scale|case |seed ", line)]


def test_a_whole_session_is_silent(report: SessionReport) -> None:
    """Where nothing is missing, stale or empty there is no line."""
    assert told(replace(report, base_revision=BASE, ci=True)) == []


def test_missing_cases_are_bounded(report: SessionReport) -> None:
    """The terminal lists the first ones and counts the rest; -v lists all, -q the count alone."""
    names = tuple(f"cgins.yaml::relu/cpp/pack/s{i}" for i in range(terminal.SHOWN_NAMES + 3))
    report = replace(report, missing=names, base_revision=BASE, ci=True)
    head = f"MISSING 13 cases of {BASE} are no longer there: restore what is missing, or accept it once with --cgins-allow-fewer"
    assert told(report) == [
        head,
        *(f"  {name}" for name in names[: terminal.SHOWN_NAMES]),
        "  ... 3 more: -v lists them all",
    ]
    assert told(report, 1) == [head, *(f"  {name}" for name in names)]
    assert told(report, -1) == [head]
    assert head in terminal.render(report, width=200, colour=False, verbosity=0).splitlines()


def test_summary_has_them_escaped(report: SessionReport) -> None:
    """Names from the base revision and words of git are text, not markup."""
    report = replace(
        report, missing=("x.yaml::<script>",), base_revision="<b>", stale=("cgins.yaml: <i>",), ci=True
    )
    page = markdown.render(report)
    assert "<strong>Missing cases</strong>" in page
    assert "<strong>Changed</strong>" in page
    assert not any(tag in page for tag in ("<script>", "<b>", "<i>"))
    without = replace(report, missing=(), base_revision="", coverage_note="no <base> here")
    assert "cases are not compared with the base revision: no &lt;base&gt; here" in markdown.render(without)


def test_why_nothing_was_compared_is_told_in_ci_and_on_request(report: SessionReport) -> None:
    """A missing repository bothers nobody at home."""
    report = replace(report, coverage_note="no default branch")
    line = "note: cases are not compared with the base revision: no default branch"
    assert (told(report), told(report, 1), told(replace(report, ci=True))) == ([], [line], [line])


def test_a_base_that_cannot_be_read_is_told_in_a_pull_request(report: SessionReport) -> None:
    """In CI it fails unless it is allowed, and is said in the words that say why; elsewhere it is a note."""
    report = replace(report, coverage_note="git has no object 1a2b", unread=True, ci=True)
    said = "BASE NOT READ: git has no object 1a2b: fix it, or accept it once with --cgins-allow-fewer"
    assert told(report) == [said]
    assert said.removeprefix("BASE NOT READ: ") in markdown.render(report)
    assert told(replace(report, allow_fewer=True))[0].endswith(": allowed by --cgins-allow-fewer")
    assert told(replace(report, told_only=True))[0].startswith("note: cases are not compared with")
    assert told(replace(report, ci=False)) == []


def test_weaker_settings_come_first(report: SessionReport) -> None:
    """All of them, before what was judged by them, and what to do; their words are text."""
    lines = tuple(f"cgins.yaml: k{i}: gate.tolerate 0.02 → <b>" for i in range(30))
    report = replace(report, weaker=lines, base_revision=BASE, ci=True, missing=("a::b",))
    head = f"30 settings of the gate are weaker than at {BASE}: undo that, or have a person accept it with --cgins-allow-weaker"
    shown = terminal.render(report, width=200, colour=False, verbosity=-1).splitlines()
    assert shown[:31] == [f"WEAKER {head}", *(f"  {line}" for line in lines)]
    for page in (markdown.render(report), pull_request_comment.comment(report)):
        assert page.index("Weaker gate") < page.index("Missing cases")
        assert page.count("gate.tolerate 0.02 → &lt;b&gt;") == 30
    for told_as, changed in (
        ("; fails in CI", {"ci": False}),
        ("allowed by --cgins-allow-weaker", {"allow_weaker": True}),
        (
            "not enforced in this run; it fails in a pull request in CI, or with --cgins-baseline",
            {"told_only": True},
        ),
    ):
        assert notices.weaker_line(replace(report, **changed)).endswith(told_as)


def test_a_session_without_cases_says_so_in_ci(report: SessionReport) -> None:
    """Without evaluations there is no table, and without anything to say no section."""
    empty = replace(report, evaluations=(), empty=True)
    assert terminal.render(empty, width=100, colour=False, verbosity=0) == ""
    said = terminal.render(replace(empty, ci=True), width=100, colour=False, verbosity=0)
    assert said == "NOTHING GATED: there was no case; --cgins-allow-fewer lets such a run pass in CI\n"
    assert "<strong>Nothing was gated</strong>" in markdown.render(empty)


@pytest.mark.parametrize("ci", [True, False])
@pytest.mark.parametrize("allowed", [True, False])
def test_exit_codes(report: SessionReport, make_evaluation: Make, ci: bool, allowed: bool) -> None:
    """In CI missing cases are 1 and an empty run 5 unless they are allowed, and stale evidence is always 1."""
    report = replace(report, ci=ci, allow_fewer=allowed)
    fails = ci and not allowed
    assert settled(report, 0) == 0
    assert settled(replace(report, missing=("a",)), 0) == (1 if fails else 0)
    assert settled(replace(report, missing=("a",), told_only=True), 0) == 0
    assert settled(replace(report, missing=("a",)), 6) == (1 if fails else 6)
    assert settled(replace(report, unread=True), 0) == (1 if fails else 0)
    assert settled(replace(report, unread=True, told_only=True), 0) == 0
    loose = replace(report, weaker=("k: tolerance",), allow_fewer=False, allow_weaker=allowed)
    assert settled(loose, 0) == (1 if fails else 0)
    assert settled(replace(loose, told_only=True), 0) == 0
    assert settled(replace(report, stale=("a",)), 0) == (1 if ci else 0)
    skipped = replace(report, evaluations=(make_evaluation(Status.SKIPPED),), empty=True)
    assert settled(skipped, 0) == (5 if fails else 0)
    assert settled(skipped, 6) == 6


def test_what_counts_as_ci() -> None:
    """The variable that services set, unless it says no."""
    assert [in_ci({"CI": text}) for text in ("true", "1", "", "0", "False", "no")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert not in_ci({})
