"""The session as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import junitparser
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from reports import CPU, report_of
from timings import REVISION, compared, measured

from pytest_cgins.core import session_report
from pytest_cgins.core.session_report import Compilation, Evaluation, MergedRun, SessionReport
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.report import escape, junit
from tests.report.test_markdown import HOSTILE

Make = Callable[..., Evaluation]
SPILLS = Verdict(
    status=Status.RESOURCES,
    reason=Reason.SPILLS_GREW,
    message="it spills",
    numbers={"spill_nbytes_per_thread": 48.0},
)
BUILD = Compilation(
    kernel="mix", implementation="cuda", arch="sm_90a", verdict=SPILLS, resources=(), base=(),
    base_revision=REVISION, build_seconds=1.0, seconds=2.0,
)  # fmt: skip


@cache
def schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(Path(__file__).parent / "schema" / "junit-10.xsd")


def read(report: SessionReport) -> junitparser.JUnitXml:
    """As junitparser has it; the schema has been held against it."""
    text = junit.render(report)
    schema().validate(text)
    return junitparser.JUnitXml.fromstring(text.encode())


def properties(case: junitparser.TestCase) -> dict[str, str]:
    """Of the lines that a case printed."""
    lines = (case.system_out or "").splitlines()
    found = [re.fullmatch(r"\[\[PROPERTY\|(.+?)=(.*)\]\]", line) for line in lines]
    assert all(found), lines
    return {one[1]: one[2] for one in found if one is not None}


def one_of_each(make_evaluation: Make) -> list[Evaluation]:
    return [
        make_evaluation(
            status, kernel=f"kernel{number % 3}", signature=status.value, reason=Reason.OK, message="m"
        )
        for number, status in enumerate(Status)
    ]


def test_a_suite_a_kernel_and_a_case_a_case(make_evaluation: Make) -> None:
    """Suites are kernels; statuses become failure, error, skipped or none, with the reason as type; counts add up."""
    evaluations = one_of_each(make_evaluation)
    found = read(report_of(*evaluations))
    assert {suite.name for suite in found} == {"kernel0", "kernel1", "kernel2"}
    words = {"fail": junitparser.Failure, "error": junitparser.Error, "skip": junitparser.Skipped}
    cases = {case.name: case for suite in found for case in suite}
    assert set(cases) == {f"tiny/{status.value}" for status in Status}
    for one in evaluations:
        status, case = one.verdict.status, cases[f"tiny/{one.case.signature}"]
        assert case.classname == f"{one.case.kernel}.cpu-cpp"
        assert case.time == 0.5
        kinds = [(type(result), result.type, result.message) for result in case.result]
        wanted = words.get(status.outcome)
        assert kinds == ([(wanted, "ok", f"{status.value} (ok): m")] if wanted else [])
        assert properties(case)["status"] == status.value
    counted = [found.tests, found.failures, found.errors]
    assert counted == [len(Status), *(sum(s.outcome == o for s in Status) for o in ("fail", "error"))]
    assert sum(suite.skipped for suite in found) == 1
    assert found.time == pytest.approx(0.5 * len(Status))


def test_strict_and_fail_on_decide_as_in_pytest(make_evaluation: Make) -> None:
    """A weak case fails under strict only, a slow one not where `gate.fail_on` is never; each keeps its status."""
    weak = make_evaluation(Status.WEAK, signature="a", reason=Reason.NO_POWER)
    slow = make_evaluation(Status.SLOWER, signature="b", fail_on="never")
    for strict in (False, True):
        (suite,) = read(report_of(weak, slow, strict=strict))
        results = [[type(result) for result in case.result] for case in suite]
        assert results == [[junitparser.Failure] if strict else [], []]
        told = {one.name: one.value for one in suite.properties()}
        assert (told["cases_WEAK"], told["cases_SLOWER"], told["strict"]) == ("1", "1", str(strict).lower())


def test_properties_of_a_timed_case(make_evaluation: Make) -> None:
    """Device, error, medians in ns, the ratio with its interval, seed, revision and sources; what is not known is left out."""
    test = compared("base", [0.08 + 1e-3 * (i % 3) for i in range(20)])
    timing = measured(test, kernel_ns=1145.25, base_ns=1050.5, again=[test])
    numbers = {
        "kernel_median_ns_per_call": 1145.25,
        "ratio_to_base": test.ratio,
        "ratio_to_base_low": test.ratio_low,
    }
    one = make_evaluation(Status.SLOWER, reason=Reason.SLOWER_THAN_BASE, timing=timing)
    tested = session_report.Tested(
        sources="s" * 64, build="b", library="", trace="t", pack="", config="", cgins="1", seed=99
    )
    one = replace(one, tested=tested, verdict=replace(one.verdict, numbers=numbers))
    (suite,) = read(report_of(one))
    (case,) = suite
    told = properties(case)
    assert float(told["kernel_median_ns_per_call"]) == 1145.25
    assert float(told["ratio_to_base"]) == test.ratio
    assert float(told["ratio_to_base_low"]) == test.ratio_low
    assert told["device_name"] == "a CPU"
    assert (told["device"], told["seed"], told["base_revision"]) == ("cpu", "99", REVISION)
    assert told["sources"] == "s" * 64
    assert "--cgins-seed=99" in told["again"]
    assert "config" not in told
    assert {one.name: one.value for one in suite.properties()}["seed"] == "7"


@pytest.mark.parametrize(
    "text", [*HOSTILE, "]]>", "a]]\n[[PROPERTY|status=PASSED]]", "\ufffe\uffff\x0b\x1f\x7f\x85"]
)
def test_hostile_texts_stay_texts(make_evaluation: Make, text: str) -> None:
    """Whatever texts are, the document is valid, and none becomes an element or a property."""
    wrong = make_evaluation(
        Status.RUNTIME_ERROR, kernel=text, implementation=text, signature=text, message=text, output=text,
        reason=Reason.RAISED,
    )  # fmt: skip
    skipped = make_evaluation(Status.SKIPPED, signature="b", message=text)
    found = read(
        replace(report_of(wrong, skipped, environments=[replace(CPU, device_name=text)]), base_revision=text)
    )
    (case,) = [case for suite in found for case in suite if isinstance(case.result[0], junitparser.Failure)]
    assert properties(case)["status"] == "RUNTIME_ERROR"
    assert list(properties(case)).count("status") == 1
    expected = escape.xml(f"RUNTIME_ERROR (raised): {text.partition(chr(10))[0]}")
    assert " ".join(case.result[0].message.split()) == " ".join(expected.split())


@pytest.mark.parametrize("config", ["x]]][[PROPERTY|status=PASSED", "a[0]", "]]]", "[[[x]]]]"])
def test_a_value_is_one_property(make_evaluation: Make, config: str) -> None:
    """Whatever brackets a value has, its line has two where the property begins and two where it ends, and no others."""
    (suite,) = read(report_of(replace(make_evaluation(), config=config)))
    (case,) = suite
    lines = (case.system_out or "").splitlines()
    assert all(line.count("[[") == line.count("]]") == 1 and "]]]" not in line for line in lines), lines
    assert properties(case)["config"].replace(" ", "") == config
    assert properties(case)["status"] == "PASSED"


def test_a_number_takes_no_name_but_its_own(make_evaluation: Make) -> None:
    """A key that is not a name is cleaned as values are, and one that has another property's name is left out."""
    keys = ("a\x00b\n[[PROPERTY|reason=no", "status", "sta\x00tus", "seed=8", "", "x]]")
    one = make_evaluation(message="m")
    one = replace(one, verdict=replace(one.verdict, numbers=dict.fromkeys(keys, 1.5)))
    (suite,) = read(report_of(one))
    (case,) = suite
    told = properties(case)
    assert (told["status"], told["reason"], told["seed"]) == ("PASSED", "ok", "7")
    assert {name for name, value in told.items() if value == "1.5"} == {
        "ab [ [PROPERTY|reason:no", "seed:8", "x] ] ",
    }  # fmt: skip
    assert {found.name for found in suite.properties() if found.name.startswith("cases_")} == {"cases_PASSED"}


def test_two_files_are_told_apart(make_evaluation: Make) -> None:
    """Cases of one name in two `cgins.yaml`, and builds, have suites and class names that begin with the file's path."""
    evaluations = [replace(make_evaluation(), config=f"{name}/cgins.yaml") for name in "ab"]
    found = read(report_of(*evaluations))
    assert [(suite.name, case.classname, case.name) for suite in found for case in suite] == [
        (f"{name}/cgins.yaml::scale", f"{name}/cgins.yaml::scale.cpu-cpp", "tiny/f32-2x3-0001")
        for name in "ab"
    ]
    built = replace(report_of(), compilations=tuple(replace(BUILD, config=one.config) for one in evaluations))
    assert [suite.name for suite in read(built)] == ["a/cgins.yaml::mix", "b/cgins.yaml::mix"]


def test_a_merged_report_has_no_seed_of_all(make_evaluation: Make) -> None:
    """Where runs had seeds of their own, none is told for a suite or for a case that was not tested."""
    runs = tuple(MergedRun(seed=seed, started_at="", exit_status=0, tests=0, devices=()) for seed in (7, 8))
    for merged, seed in ((runs, None), (runs[:1], "7")):
        (suite,) = read(replace(report_of(make_evaluation(Status.SKIPPED)), merged=merged))
        (case,) = suite
        assert {one.name: one.value for one in suite.properties()}.get("seed") == seed
        assert properties(case).get("seed") == seed


@pytest.mark.parametrize("strict", [False, True])
def test_what_nothing_gates_is_there(make_evaluation: Make, strict: bool) -> None:
    """A kernel whose contract covers no case is a failure of the whole under --cgins-strict, and skipped elsewhere."""
    skipped = make_evaluation(Status.SKIPPED, reason=Reason.CONTRACT, message="takes no bias\nmore")
    found = read(report_of(skipped, strict=strict))
    (case,) = next(suite for suite in found if suite.name == "cgins")
    (result,) = case.result
    assert (case.classname, case.name, result.type) == ("cgins.ungated", "scale/cpp (cpu)", "ungated")
    assert result.message == "its contract covers none of its 1 case: takes no bias"
    assert isinstance(result, junitparser.Failure if strict else junitparser.Skipped)
    assert found.failures == int(strict)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(), max_size=40))
def test_cleaned_text_is_what_xml_can_say(text: str) -> None:
    """All of Unicode: what is left is parsed again to itself, and nothing that XML allows was taken."""
    cleaned = escape.xml(text)
    element = ET.Element("a")
    element.text = cleaned
    again = ET.fromstring(ET.tostring(element, encoding="unicode")).text or ""
    assert again == cleaned.replace("\r\n", "\n").replace("\r", "\n")
    lost = set(text) - set(cleaned)
    assert all(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 or ord(c) in (0xFFFE, 0xFFFF) for c in lost)


def test_long_messages_are_cut(make_evaluation: Make) -> None:
    """A compiler that printed megabytes does not make megabytes of every viewer's page."""
    one = make_evaluation(Status.INCORRECT, message="x" * 10**6 + "\n" + "y" * 10**6)
    (suite,) = read(report_of(one))
    (case,) = suite
    assert len(case.result[0].message) < junit.MESSAGE_LENGTH + 100
    assert len(case.result[0].text) < junit.TEXT_LENGTH + 100


@pytest.mark.parametrize("ci", [False, True])
def test_what_speaks_against_the_whole_is_there(make_evaluation: Make, ci: bool) -> None:
    """Missing cases, stale evidence and an empty run are failures where they fail the run, and skipped elsewhere."""
    report = replace(
        report_of(make_evaluation(Status.SKIPPED)),
        missing=("cgins.yaml::a/b",), stale=("kernel a changed",), empty=True, ci=ci, base_revision="1a2b",
    )  # fmt: skip
    suites = {suite.name: list(suite) for suite in read(report)}
    kind = junitparser.Failure if ci else junitparser.Skipped
    assert [(case.name, type(case.result[0]), case.result[0].type) for case in suites["cgins"]] == [
        ("cgins.yaml::a/b", kind, "missing"),
        ("kernel a changed", kind, "stale"),
        ("nothing gated", kind, "empty"),
    ]


def test_builds_are_cases_of_their_kernel() -> None:
    """`--cgins-compile-only`: a case an architecture, with what the functions take."""
    (suite,) = read(replace(report_of(), compilations=(BUILD,)))
    (case,) = suite
    assert (suite.name, case.classname, case.name, case.time) == ("mix", "mix.cuda", "sm_90a", 2.0)
    assert case.result[0].type == "spills-grew"
    assert properties(case)["spill_nbytes_per_thread"] == "48.0"


def test_no_case_is_a_document_too() -> None:
    """A report without a case is valid, and has no suites."""
    assert list(read(report_of())) == []
