"""`cgins report`: one report in all formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins import cli, documents
from pytest_cgins.model import Evaluation, Reason, SessionReport, Status
from pytest_cgins.report import commands, document, formats, markdown
from pytest_cgins.report.comment import COMMENT_LIMIT_NBYTES
from tests.report.test_markdown import HOSTILE, assert_harmless, parsed, report_of

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


def test_the_command_offers_what_there_is() -> None:
    """The names in the help are those of the table."""
    assert tuple(formats.FORMATS) == commands.FORMATS


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
    found = replace(report_of(wrong, device_name=text), missing=(text,), stale=(text,), base_revision=text)
    assert_harmless(formats.FORMATS[name](found))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_terminal_is_sent_no_commands(make_evaluation: Make, text: str) -> None:
    """Escape sequences and marks that reverse text are spelled out: a report may come from anybody."""
    wrong = make_evaluation(
        Status.RUNTIME_ERROR, kernel=text, signature=text, message=text, output=text, reason=Reason.RAISED
    )
    found = formats.FORMATS["terminal"](replace(report_of(wrong, device_name=text), missing=(text,)))
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]*", found)
    assert "RUNTIME_ERROR" in found


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
    assert re.search(r"<p>… \d+ more: the JSON report has them all.</p>", text)
    assert text.count("<table>") == text.count("</table>")


def test_a_comment_has_what_wants_to_be_looked_at(report: SessionReport) -> None:
    """Worst first, with the command for a failure; what simply passed is in the kernels' counts only."""
    text = formats.FORMATS["comment"](report)
    assert text.startswith("## cgins: 1 failed, 2 passed\n")
    verdicts = text[text.index("### Verdicts") : text.index("</table>")]
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
