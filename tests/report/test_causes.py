"""Failures are grouped by cause, in every format: one full example, one line for the rest, and nothing lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from reports import report_of

from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import formats, terminal
from pytest_cgins.report.presentation import present
from pytest_cgins.report.results import Cause, pattern
from tests.report.test_compiled import other
from tests.report.test_compiled import report as report_of_builds

Make = Callable[..., Evaluation]


@pytest.fixture
def eps(make_evaluation: Make) -> SessionReport:
    """18 cases of a kernel that leaves out eps, and one that passes."""
    wrong = [
        make_evaluation(
            Status.INCORRECT,
            kernel="norm",
            signature=f"f32-2x{number}",
            reason=Reason.GOLD_MISMATCH,
            message=f"{number} of {2 * number} elements {'is' if number == 1 else 'are'} wrong at [{number}, 2]",
            share=float(number),
            worst=None,
            times_ns=None,
        )
        for number in range(1, 19)
    ]
    return report_of(*wrong, make_evaluation(kernel="norm", signature="good"))


@pytest.fixture
def refused(make_evaluation: Make) -> SessionReport:
    """20 cases of a kernel that does not compile."""
    message = "nvcc refused norm.cu\nnorm.cu:3: error: x is undefined\nlog: /cache/1234567890abcdef/log"
    return report_of(
        *(
            make_evaluation(
                Status.BUILD_ERROR,
                kernel="norm",
                signature=f"s{n}",
                reason=Reason.COMPILER,
                message=message,
                times_ns=None,
            )
            for n in range(20)
        )
    )


def causes(report: SessionReport) -> tuple[Cause, ...]:
    return present(report).causes


def sentence(report: SessionReport) -> str:
    return present(report).sentence


def names(report: SessionReport) -> list[str]:
    return [one.label for one in report.evaluations if one.verdict.status is not Status.PASSED]


def test_18_cases_of_one_cause_are_an_example_and_a_line(eps: SessionReport) -> None:
    """The worst case stands for all of them; how many there are is told, and where they are."""
    (cause,) = causes(eps)
    assert (cause.first.name, len(cause.rest)) == ("norm/cpu-cpp/tiny/f32-2x18", 17)
    assert sentence(eps) == "18 failures of 1 cause: 18 INCORRECT (gold-mismatch) of norm/cpp (cpu)"
    text = terminal.render(eps, width=100, colour=False, verbosity=0)
    first, heading, *lines = text.splitlines()
    assert first == sentence(eps)
    assert heading.startswith("kernel ")
    start = lines.index(
        "INCORRECT norm/cpu-cpp/tiny/f32-2x18 (gold-mismatch): 18 of 36 elements are wrong at [18, 2]"
    )
    assert lines[start + 1] == "  17 more cases fail the same way: -v lists them all"
    assert text.count("INCORRECT norm/") == 1
    every = terminal.render(eps, width=100, colour=False, verbosity=1)
    assert every.count("\nINCORRECT norm/") == 18


@pytest.mark.parametrize("name", ["markdown", "comment"])
def test_markdown_has_one_message_and_names_every_case(eps: SessionReport, name: str) -> None:
    """Sentence and kernels come before the failures; one message, one row a cause, and the others in a table."""
    text = formats.FORMATS[name](eps)
    table = "### Failures" if name == "markdown" else "### Verdicts"
    assert text.index(sentence(eps)) < text.index("### Kernels") < text.index(table)
    assert text.count("<details>") == 1
    assert text[text.index(table) :].partition("</table>")[0].count("<td><code>INCORRECT") == 1
    rest = text[text.index("### More failures of the same causes") :].partition("</table>")[0]
    assert rest.count("<tr><td>") == 17
    assert rest.count("pytest --cgins ") == 17
    assert all(one in text for one in names(eps))


def test_a_compile_error_is_told_once_a_kernel(refused: SessionReport) -> None:
    """However many cases it has: errors and log once, every case by name."""
    for name in ("markdown", "comment"):
        text = formats.FORMATS[name](refused)
        assert text.count("x is undefined") == 1, name
        assert all(one in text for one in names(refused)), name
    (cause,) = causes(refused)
    assert len(cause.failures) == 20
    other = replace(
        refused.evaluations[0], case=replace(refused.evaluations[0].case, implementation="triton")
    )
    assert len(causes(report_of(*refused.evaluations, other))) == 2


def test_two_causes_in_one_kernel_are_two(eps: SessionReport, refused: SessionReport) -> None:
    """Another reason, or other words, are another cause; each has its example, and the sentence counts both."""
    both = report_of(*eps.evaluations, *refused.evaluations)
    assert [len(one.failures) for one in causes(both)] == [18, 20]
    assert sentence(both) == (
        "38 failures of 2 causes: 20 BUILD_ERROR (compiler) of norm/cpp (cpu), "
        "18 INCORRECT (gold-mismatch) of norm/cpp (cpu)"
    )
    assert formats.FORMATS["markdown"](both).count("<details>") == 2
    one = eps.evaluations[0]
    words = replace(one, verdict=replace(one.verdict, message="the output has another shape"))
    assert len(causes(report_of(*eps.evaluations, words))) == 2


def test_programs_have_every_case(eps: SessionReport) -> None:
    """The JSON and JUnit are not grouped, and the page has a row and a part of details for each."""
    assert len(json.loads(formats.FORMATS["json"](eps))["evaluations"]) == 19
    assert formats.FORMATS["junit"](eps).count("<testcase ") == 19
    assert formats.FORMATS["junit"](eps).count("<failure ") == 18
    page = formats.FORMATS["html"](eps)
    assert page.count("<noscript ") == 19
    head = page.partition("<section data-list")[0]
    assert head.index(sentence(eps)) < head.index("Kernels") < head.index("Worst: ")
    assert "17 more cases fail the same way" in head
    assert len(re.findall(r'<a href="#cases-\d+">norm/', head)) == 18


def test_builds_of_one_cause_on_several_architectures() -> None:
    """The architecture's name is no part of the cause."""
    failed = [
        replace(other("norm", Status.BUILD_ERROR, Reason.COMPILER, f"refused for {arch}"), arch=arch)
        for arch in ("sm_80", "sm_90a", "sm_100")
    ]
    report = report_of_builds(*failed)
    text = terminal.render(report, width=100, colour=False, verbosity=0)
    assert text.startswith("3 failures of 1 cause: 3 BUILD_ERROR (compiler) of norm/cuda-triton\n")
    assert text.count("BUILD_ERROR norm/cuda-triton/") == 1
    assert "  2 more builds fail the same way: -v lists them all\n" in text
    page = formats.FORMATS["markdown"](report)
    assert page.count("<details>") == 1
    assert all(one.name in page for one in failed)


def test_causes_that_are_called_the_same_are_counted_together(make_evaluation: Make) -> None:
    """The sentence does not say `1 INCORRECT (size-dependent)` twice."""
    found = [
        make_evaluation(Status.INCORRECT, signature=words, reason=Reason.SIZE_DEPENDENT, message=words)
        for words in ("one row", "a column")
    ]
    said = "2 failures of 2 causes: 2 INCORRECT (size-dependent) of scale/cpp (cpu)"
    assert sentence(report_of(*found)) == said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 of 8 compared elements is wrong at [1, 2]", "3 of 8 compared elements are wrong at [1, 2, 3]"),
        ("1 element wrong", "12,000 elements wrong"),
        ("time +8.2% (+7.1%..+9%), 3 us", "time +0.5% (-1%..+9%), 3.5 ms"),
        ("undecided: 1.082x (1.0713..1.09) the time", "undecided: 0.99x (0.9851..1.002) the time"),
        ("expected 1e-05 got nan", "expected -2.5 got inf"),
        ("log: /c/1234567890abcdef/log", "log: /c/fedcba9876543210/log"),
    ],
)
def test_numbers_are_no_part_of_a_cause(one: str, other: str) -> None:
    """Nor are a list's length, a unit of time, a digest and a plural."""
    assert pattern(one) == pattern(other)


def test_where_elements_are_wrong_is_no_part_of_a_cause_and_the_diagnosis_is() -> None:
    """Each shape has a pattern of its own; the call whose right answer it is tells causes apart."""
    wrong = (
        "{} differs: 4 of 8 elements are wrong. Worst is [{}]: expected 0.5, got 1. Where: {}.{} It is {}."
    )
    one = wrong.format("output", "1, 2", "rows 0-3 (2 of 4 rows wrong), all columns", "", "right without eps")
    row = " There `input` is -2.1, in a row with mean 0.3 and variance 3e-07."
    other = wrong.format("output", "3", "everywhere: 8 of 8 elements", row, "right without eps")
    assert pattern(one) == pattern(other)
    assert pattern(one) != pattern(one.replace("without eps", "with eps inside"))


def test_words_are_part_of_a_cause() -> None:
    assert pattern("output 0 has shape (2, 3)") != pattern("output 0 has dtype float16")
