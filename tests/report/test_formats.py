"""`cgins report`: one report in all formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from reports import CPU, report_of
from timings import compared, measured

from pytest_cgins.app import cli
from pytest_cgins.core import documents
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import document, formats, markdown, times
from pytest_cgins.report.pull_request_comment import COMMENT_LIMIT_NBYTES
from tests.report.test_markdown import HOSTILE, assert_harmless, parsed

Make = Callable[..., Evaluation]
TEXTS = sorted(set(formats.FORMATS) - {"html"})
"""Those whose tests are here; the page has tests of its own."""
LIMITS = {
    "markdown": markdown.STEP_SUMMARY_LIMIT_NBYTES,
    "comment": COMMENT_LIMIT_NBYTES,
    "pull-request": COMMENT_LIMIT_NBYTES,
}


@pytest.fixture
def report(make_evaluation: Make) -> SessionReport:
    """With a failure, an undecided case and one that passes."""
    return report_of(
        make_evaluation(signature="good"),
        make_evaluation(Status.INCONCLUSIVE, signature="open", reason=Reason.NOISE),
        make_evaluation(Status.INCORRECT, signature="wrong", reason=Reason.SHAPE, message="it is wrong"),
    )


@pytest.mark.parametrize("name", TEXTS)
def test_each_format_is_printed_and_written_alike(
    name: str, report: SessionReport, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """To the standard output or to a file, with the name of the failed case; a failed gate is no error of the command."""
    file, out = tmp_path / "report.json", tmp_path / "deep" / "out"
    document.write(report, file)
    assert cli.main(["report", str(file), f"--format={name}"]) == 0
    printed = capfdbinary.readouterr().out
    assert cli.main(["report", str(file), f"--format={name}", f"--out={out}"]) == 0
    assert capfdbinary.readouterr().out == b""
    assert out.read_bytes() == printed
    assert b"wrong" in printed
    assert printed.endswith(b"\n")


def test_terminal_is_the_default(
    report: SessionReport, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Without `--format` the section of the run is printed, with a line a case and no escape codes."""
    file = tmp_path / "report.json"
    document.write(report, file)
    assert cli.main(["report", str(file)]) == 0
    printed = capfdbinary.readouterr().out.decode()
    assert "INCORRECT scale/cpu-cpp/tiny/wrong (shape): it is wrong" in printed
    assert "\x1b" not in printed


def test_json_comes_back(report: SessionReport) -> None:
    """The document is the same after a round, so that `--format=json` adds what an older one lacks."""
    text = formats.FORMATS["json"](report)
    assert documents.load(SessionReport, text) == report
    old = json.loads(text)
    for name in ("shard", "suite_tests", "merged"):
        del old[name]
    assert documents.load(SessionReport, json.dumps(old)) == report


@pytest.mark.parametrize("name", sorted(LIMITS))
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(make_evaluation: Make, name: str, text: str) -> None:
    """Each markdown has our elements alone, whatever names, messages and outputs are."""
    wrong = make_evaluation(
        Status.RUNTIME_ERROR, kernel=text, implementation=text, signature=text, message=text, output=text,
        reason=Reason.RAISED,
    )  # fmt: skip
    found = replace(
        report_of(wrong, environments=[replace(CPU, device_name=text)]),
        missing=(text,),
        stale=(text,),
        base_revision=text,
    )
    assert_harmless(formats.FORMATS[name](found))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_is_sent_no_commands(make_evaluation: Make, text: str) -> None:
    """Escape sequences and marks that reverse text are spelled out: a report may come from anybody."""
    wrong = make_evaluation(
        Status.RUNTIME_ERROR, kernel=text, signature=text, message=text, output=text, reason=Reason.RAISED
    )
    found = formats.FORMATS["terminal"](
        replace(report_of(wrong, environments=[replace(CPU, device_name=text)]), missing=(text,))
    )
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]*", found)
    assert "RUNTIME_ERROR" in found


BREAKS = ("\n", "\r\n", "\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e")


@pytest.mark.parametrize("gap", BREAKS)
@pytest.mark.parametrize(
    "command", ["::error file=a.py::forged", "  ::add-mask::a", "##[add-mask]a", "seed 8"]
)
def test_no_line_of_the_terminal_begins_with_a_text(make_evaluation: Make, gap: str, command: str) -> None:
    """Messages, notes and names have no lines of their own that a runner obeys, or that look like ours."""
    text = f"why{gap}{command}"
    wrong = make_evaluation(
        Status.INCORRECT, kernel=text, implementation=text, signature=text, message=text, reason=Reason.SHAPE
    )
    assert wrong.correctness is not None
    noted = replace(wrong, correctness=replace(wrong.correctness, notes=(text,)))
    skips = [
        make_evaluation(Status.SKIPPED, signature=reason.value, kernel=kernel, message=text, reason=reason)
        for reason in (Reason.CONTRACT, Reason.DEVICE_ABSENT)
        for kernel in ("b", "::error::c")
    ]
    found = replace(
        report_of(noted, *skips),
        missing=(text,),
        stale=(text,),
        base_revision=text,
        ci=True,
        coverage_note=text,
    )
    printed = formats.FORMATS["terminal"](found)
    lines = re.split("[\n\r\u2028\u2029\x85\x0b\x0c\x1c\x1e]", printed)
    assert not [line for line in lines if re.match(r"\s*::|.*##\[", line)]
    assert sum(line.startswith("seed ") for line in lines) == 1
    assert printed.count("add-mask") + printed.count("forged") + printed.count("seed 8") >= 7


@pytest.mark.exam
@pytest.mark.parametrize("name", sorted(LIMITS))
def test_limits_hold(make_evaluation: Make, name: str) -> None:
    """A thousand failures with long messages in three-byte letters fit; what does not is counted."""
    many = [
        make_evaluation(
            Status.INCORRECT, reason=Reason.SHAPE, kernel=f"kernel{number}", message="\u4e16" * 50_000
        )
        for number in range(1000)
    ]
    text = formats.FORMATS[name](report_of(*many))
    assert len(text.encode()) <= LIMITS[name]
    assert re.search(r"<p>… \d+ more in the JSON report.</p>", text)
    assert text.count("<table>") == text.count("</table>")


def test_a_comment_has_what_wants_to_be_looked_at(report: SessionReport) -> None:
    """Worst first, with the command for a failure; what simply passed is in the kernels' counts only."""
    text = formats.FORMATS["comment"](report)
    assert text.startswith("## cgins: 1 failed, 2 passed\n")
    verdicts = text[text.index("### Verdicts") :].partition("</table>")[0]
    assert verdicts.index("tiny/wrong") < verdicts.index("tiny/open")
    assert "tiny/good" not in verdicts
    again = "pytest --cgins --cgins-seed=7 cgins.yaml::scale/cpu-cpp/tiny/wrong"
    assert again in parsed(verdicts).codes
    assert "1 INCORRECT, 1 INCONCLUSIVE, 1 PASSED" in text


def test_a_pull_request_has_every_case(report: SessionReport) -> None:
    """All verdicts, worst first."""
    text = formats.FORMATS["pull-request"](report)
    places = [text.index(f"tiny/{name}</code>") for name in ("wrong", "open", "good")]
    assert places == sorted(places)


def test_a_clean_comment_has_no_table_of_verdicts(make_evaluation: Make) -> None:
    """Where all is well, totals and kernels are all there is."""
    text = formats.FORMATS["comment"](report_of(make_evaluation(), exit_status=0))
    assert re.findall("^##.*$", text, re.MULTILINE) == ["## cgins: 1 passed", "### Kernels"]


@pytest.mark.parametrize("name", sorted(LIMITS))
@pytest.mark.parametrize("strict", [False, True])
def test_what_nothing_gates_is_told(make_evaluation: Make, name: str, strict: bool) -> None:
    """An implementation whose contract covers no case has a line with the reason, and under strict one says that it fails."""
    skipped = make_evaluation(Status.SKIPPED, reason=Reason.CONTRACT, message="takes no bias")
    text = formats.FORMATS[name](report_of(skipped, make_evaluation(kernel="other"), strict=strict))
    assert "scale/cpp: its contract covers none of its 1 case: takes no bias" in parsed(text).codes
    assert ("<strong>Not gated, which fails under --cgins-strict</strong>" in text) == strict
    assert "<strong>Not gated" in text
    assert "Not gated" not in formats.FORMATS[name](report_of(make_evaluation(), strict=strict))


@pytest.mark.parametrize("name", ["comment", "markdown"])
@pytest.mark.parametrize("length", [1, 5900])
def test_messages_that_are_left_out_are_counted(make_evaluation: Make, name: str, length: int) -> None:
    """What is shown and what is said to be left out add up to all failures, whether 20 messages fit or fewer."""
    many = [
        make_evaluation(Status.INCORRECT, kernel=f"kernel{number}", message=f"m\n{'x' * length}")
        for number in range(300)
    ]
    text = formats.FORMATS[name](report_of(*many))
    shown = text.count("<details>")
    assert shown == 20 if length == 1 or name == "markdown" else 0 < shown < 20
    _, _, rest = text.rpartition("</details>")
    counted = re.match(r"\s*<p>… (\d+) more", rest)
    assert counted is not None
    assert int(counted[1]) == 300 - shown


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_two_files_are_told_apart(make_evaluation: Make, name: str) -> None:
    """Where two `cgins.yaml` have a case of one name, cases and kernels stand behind their file."""
    files = ("a/cgins.yaml", "b/cgins.yaml")
    timing = measured(compared("base", [0.0] * 30))
    both = [
        replace(make_evaluation(Status.SLOWER, timing=timing, reason=Reason.SLOWER_THAN_BASE), config=file)
        for file in files
    ]
    codes = parsed(formats.FORMATS[name](report_of(*both))).codes
    label = both[0].label
    assert {f"{file}::{said}" for file in files for said in (label, "scale")} <= set(codes)
    assert label not in codes


def test_a_slow_case_does_not_bring_its_namesake(make_evaluation: Make) -> None:
    """Probably slower in one `cgins.yaml` says nothing of the case of the same name in another."""
    slow = [0.04 + 0.001 * (number % 7) for number in range(40)]
    one = replace(
        make_evaluation(Status.SAME, timing=measured(compared("base", slow))), config="a/cgins.yaml"
    )
    other = replace(
        make_evaluation(Status.SAME, timing=measured(compared("base", [0.0] * 40))), config="b/cgins.yaml"
    )
    report = report_of(one, other)
    assert [found.config for found in times.probably_slower(report.evaluations)] == ["a/cgins.yaml"]
    text = formats.FORMATS["comment"](report)
    codes = parsed(text[text.index("### Verdicts") :].partition("</table>")[0]).codes
    assert f"a/cgins.yaml::{one.label}" in codes
    assert f"b/cgins.yaml::{one.label}" not in codes
