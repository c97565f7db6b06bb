"""One run over kernels that are right, wrong and worse: outcomes, messages, JUnit XML, JSON, table."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import SessionReport

if TYPE_CHECKING:
    from conftest import Run

EXPECTED = {
    "relu/right": "PASSED",
    "relu/cuda": "SKIPPED",
    "relu/wrong": "INCORRECT",
    "relu/crash": "RUNTIME_ERROR",
    "relu/refuse": "RUNTIME_ERROR",
    "relu/broken": "BUILD_ERROR",
    "threshold/cpp": "WEAK",
    "scaled/python": "PASSED",
}

pytestmark = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="the expected skips need no GPU")


def section(run: Run, name: str) -> str:
    """The failure section of one item."""
    start = next(
        i for i, line in enumerate(run.lines) if f" kernel {name}" in line and line.startswith("___")
    )
    rest = run.lines[start + 1 :]
    end = next(i for i, line in enumerate(rest) if line.startswith(("___", "===")))
    return "\n".join(rest[:end])


def test_every_status_has_its_outcome(full_run: Run) -> None:
    """Right and weak pass, wrong, crashing, refusing and unbuildable fail, an absent device skips: exit 1."""
    found = {name.split(" ")[0]: status for name, status in full_run.statuses().items()}
    assert found == EXPECTED
    per_case = [name.split(" ")[0] for name in full_run.statuses()]
    assert Counter(per_case)["relu/right"] == 2
    assert full_run.counts == {"failed": 8, "passed": 4, "skipped": 2, "warning": 1}
    assert full_run.code == 1


def test_messages_say_what_where_and_how_to_repeat(full_run: Run) -> None:
    """A wrong answer's message has status, element, both values and a command, and no traceback of ours."""
    name = next(line.split("::")[1].split(" ")[0] for line in full_run.lines if "::relu/cpu-wrong/" in line)
    text = section(full_run, name)
    assert re.match(r"INCORRECT \((gold|reference)-mismatch\): ", text)
    for part in (
        "worst   output 0 at [",
        "expected ",
        "got      ",
        "allowed  ±",
        "call    torch.nn.functional.relu(input float32[",
    ):
        assert part in text
    again = shlex.split(re.search(r"^again +(.+)$", text, re.MULTILINE)[1])
    assert again == ["pytest", "--cgins", "--cgins-seed=7", f"cgins.yaml::{name}"]
    assert "Traceback" not in full_run.out
    assert "pytest_cgins/" not in text


def test_crash_message_quotes_the_kernel(full_run: Run) -> None:
    """What a kernel printed before it died is in its message."""
    name = next(line.split("::")[1].split(" ")[0] for line in full_run.lines if "::relu/cpu-crash/" in line)
    assert "| last words" in section(full_run, name)


def test_refusal_and_build_error_show_their_cause(full_run: Run) -> None:
    """A launcher's own message and a compiler's first error line reach the short summary."""
    summary = [line for line in full_run.lines if line.startswith("FAILED ")]
    assert any("cpu-refuse" in line and "elements are too many" in line for line in summary)
    assert any("cpu-broken" in line and "relu.cpp" in line for line in summary)


def test_weak_case_warns(full_run: Run) -> None:
    """A weak case passes, and stands among pytest's warnings with the forgery that would pass."""
    assert re.search(r"WeakCaseWarning: threshold/\S+: WEAK \(no-power\): .*zeros", full_run.out)


def test_junit_has_statuses_as_properties(full_run: Run) -> None:
    """Each test case of the XML carries status, reason and numbers; failures carry the verdict."""
    cases = list(ET.parse(full_run.folder / "junit.xml").iter("testcase"))
    properties = {
        case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in cases
    }
    statuses = Counter(values["cgins_status"] for values in properties.values())
    assert statuses == Counter(full_run.statuses().values())
    right = next(values for name, values in properties.items() if name.startswith("relu/cpu-right/"))
    assert right["cgins_reason"] == "ok"
    assert 0 <= float(right["cgins_error_share_of_tolerance"]) <= 1
    assert float(right["cgins_speedup_vs_torch"]) > 0
    failures = [case.find("failure") for case in cases if case.find("failure") is not None]
    assert len(failures) == 8
    assert any("INCORRECT (" in failure.get("message") for failure in failures)
    assert sum(case.find("skipped") is not None for case in cases) == 2


def test_document_is_valid_and_complete(full_run: Run) -> None:
    """The JSON document is one of ours, with seed, exit code and what it ran on."""
    report = documents.load(SessionReport, (full_run.folder / "report.json").read_bytes())
    assert (report.seed, report.exit_status, len(report.evaluations)) == (7, 1, 14)
    assert [environment.device for environment in report.environments] == ["cpu"]
    names = [evaluation.case.name for evaluation in report.evaluations]
    assert names == sorted(names)


def test_table_is_the_document(full_run: Run) -> None:
    """Cases, worst error and speed in the table are those of the JSON, to the shown digits."""
    members = [one for one in full_run.document()["evaluations"] if one["case"]["implementation"] == "right"]
    (line,) = [line for line in full_run.lines if re.match(r"relu +right \(cpu\)", line)]
    shown = re.fullmatch(
        r"relu +right \(cpu\) +(\d+) +(\d+) PASSED +(\S+) +(\S+)x \((\S+)\.\.(\S+)\) +\S+% *", line
    )
    assert shown is not None, line
    speeds = [one["measurement"]["speedup_vs_torch"] for one in members]
    shares = [
        check["share"]
        for one in members
        for check in one["correctness"]["checks"]
        if check["share"] is not None
    ]
    assert [int(shown[1]), int(shown[2])] == [2, 2]
    numbers = [float(shown[i]) for i in (3, 4, 5, 6)]
    assert numbers == pytest.approx([max(shares), median(speeds), min(speeds), max(speeds)], rel=0.0051)


def test_verbose_lines_are_node_ids(full_run: Run, run: Callable[..., Run]) -> None:
    """What -v prints before the outcome can be pasted back as an argument."""
    line = next(line for line in full_run.lines if "::scaled/" in line)
    node = line.split(" ")[0]
    again = run(full_run.folder, "--cgins", "--collect-only", "-q", node)
    assert [f"cgins.yaml::{name}" for name in again.nodes()] == [node]


def test_last_failed_selects_the_failures(full_run: Run, run: Callable[..., Run]) -> None:
    """--lf leaves the eight cases that failed."""
    again = run(full_run.folder, "--cgins", "--lf", "--collect-only", "-q")
    failed = {name.split("/")[1] for name in again.nodes()}
    assert failed == {"cpu-wrong", "cpu-crash", "cpu-refuse", "cpu-broken"}
    assert len(again.nodes()) == 8


def test_skips_stand_at_their_line_of_the_file(full_run: Run) -> None:
    """-rs counts equal skips of an implementation together, at its line of cgins.yaml."""
    line = 1 + (full_run.folder / "cgins.yaml").read_text().splitlines().index(
        "      - {name: cuda,   device: cuda, source: kernels/relu.cu}"
    )
    assert re.search(rf"^SKIPPED \[2\] cgins\.yaml:{line}: device-absent: .*cuda", full_run.out, re.MULTILINE)


@pytest.mark.exam
def test_items_know_which_case_comes_next(project: Path, run: Callable[..., Run]) -> None:
    """What is prepared while a kernel runs is the next item's case, and nothing after the last one."""
    (project / "conftest.py").write_text(
        "from pytest_cgins.gate.evaluate import Evaluator\n"
        "evaluate = Evaluator.evaluate\n"
        "def told(self, case, *, upcoming=None):\n"
        "    print('CASE', case.name, upcoming and upcoming.name, 'END')\n"
        "    return evaluate(self, case, upcoming=upcoming)\n"
        "Evaluator.evaluate = told\n"
    )
    ended = run(project, "--cgins", "--cgins-no-timing", "--cgins-probes=off", "-k", "right or refuse", "-s")
    pairs = re.findall(r"CASE (\S+) (\S+) END", ended.out)
    assert len(pairs) > 2
    assert [upcoming for _, upcoming in pairs] == [*(case for case, _ in pairs[1:]), "None"]
