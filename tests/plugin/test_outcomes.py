"""Exit codes, --cgins-strict, -x, -n, time limits, interruption."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import pytest_cgins
from pytest_cgins.core import documents
from pytest_cgins.core.options import TIMEOUT_S
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.report import failure

if TYPE_CHECKING:
    from conftest import Run

FAST = ("--cgins", "--cgins-no-timing", "--cgins-json=report.json")


STRICT = ("--cgins-strict", "--cgins-seed=7", "-k", "threshold")


@pytest.fixture(scope="module")
def weak(recorded: Path, run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A weak case under --cgins-strict, from the folder above the project."""
    folder = tmp_path_factory.mktemp("weak")
    return run(folder, *FAST, *STRICT, str(shutil.copytree(recorded, folder / "project")))


def test_weak_fails_when_strict(weak: Run) -> None:
    """A weak case, elsewhere a warning, fails under --cgins-strict; without timing there are no times."""
    assert (weak.code, weak.counts) == (1, {"failed": 1})
    again = shlex.split(re.search(r"^again +(.+)$", weak.out, re.MULTILINE)[1])
    assert {"--cgins-strict", "--cgins-no-timing"} < set(again)
    assert not any("timeout" in word for word in again)
    assert weak.document()["exit_status"] == 1
    assert [one["measurement"] for one in weak.document()["evaluations"]] == [None]


def _reproduction(found: Run) -> list[str]:
    """The line that `cgins summary` makes of the JSON alone."""
    report = documents.load(SessionReport, (found.folder / "report.json").read_bytes())
    assert report.strict
    assert [one.config for one in report.evaluations] == ["project/cgins.yaml"]
    return shlex.split(failure.command(report.evaluations[0], report))


@pytest.mark.exam
def test_summary_of_a_report_knows_the_command(weak: Run, run: Callable[..., Run]) -> None:
    """From the JSON alone `cgins summary` tells what fails, and a line that runs it where pytest began."""
    words = _reproduction(weak)
    assert words[:4] == ["pytest", "--cgins", "--cgins-seed=7", "--cgins-strict"]
    again = run(weak.folder, *words[1:], "--cgins-no-timing")
    assert (again.code, again.counts) == (1, {"failed": 1}), again.out


@pytest.mark.exam
def test_summary_of_a_report_of_workers_knows_the_same_command(
    project: Path, weak: Run, run: Callable[..., Run]
) -> None:
    """Under xdist the JSON gives the same line."""
    found = run(project.parent, *FAST, *STRICT, "-p", "xdist", "-n", "1", str(project))
    assert _reproduction(found) == _reproduction(weak)


@pytest.mark.exam
def test_kernel_that_nothing_gates_fails_when_strict(project: Path, run: Callable[..., Run]) -> None:
    """A contract that covers no case leaves its kernel unchecked: told always, exit 1 under --cgins-strict."""
    file = project / "kernels" / "threshold.cpp"
    text = file.read_text().replace("float threshold, ", "").replace("double threshold, ", "")
    file.write_text(text.replace("x[i] <= threshold", "x[i] <= value"))
    for strict, code in (([], 0), (["--cgins-strict"], 1)):
        found = run(project, *FAST, "-k", "threshold", *strict)
        assert (found.code, found.counts) == (code, {"skipped": 1}), found.out
        assert "NOT GATED threshold/cpp: its contract covers none of its 1 case: " in found.out
        assert found.document()["exit_status"] == code


@pytest.mark.exam
def test_random_op_is_skipped_with_the_remedy(project: Path, run: Callable[..., Run]) -> None:
    """Where nobody said which outputs are random nothing can be judged: skipped, and told what to do."""
    with pytest_cgins.record(
        project / "traces" / "random", ops=["torch.nn.functional.fractional_max_pool2d"]
    ):
        torch.nn.functional.fractional_max_pool2d(torch.ones(1, 2, 8, 8), 2, output_size=4)
    file = project / "cgins.yaml"
    entry = "  pool: {op: torch.nn.functional.fractional_max_pool2d, device: cpu, target: 'tiny_ops:scaled_kernel'}\n"
    file.write_text(file.read_text().replace("traces/tiny]", "traces/tiny, traces/random]") + entry)
    found = run(project, *FAST, "-k", "pool")
    assert (found.code, found.counts) == (0, {"skipped": 1}), found.out
    verdict = found.document()["evaluations"][0]["verdict"]
    assert (verdict["status"], verdict["reason"]) == ("SKIPPED", "random")
    assert (
        "fractional_max_pool2d draws random numbers from torch's generator in this call" in verdict["message"]
    )
    assert "semantics: {outputs: {0: random}}" in verdict["message"]
    assert "a function that computes its mask from a seed" in verdict["message"]


def test_drift_alone_is_exit_6(project: Path, run: Callable[..., Run]) -> None:
    """A trace that torch no longer reproduces is pytest's error, not the kernel's failure."""
    ops = project / "tiny_ops.py"
    ops.write_text(ops.read_text().replace("FACTOR = 2.0", "FACTOR = 3.0"))
    found = run(project, *FAST, "-k", "scaled")
    assert (found.code, found.counts) == (6, {"error": 1})
    assert found.document()["exit_status"] == 6
    assert list(found.statuses().values()) == ["TRACE_DRIFT"]
    assert "TRACE_DRIFT (gold-drift)" in found.out


def test_first_failure_stops_with_x(project: Path, run: Callable[..., Run]) -> None:
    """-x ends after the first failing case, and what was found so far is written."""
    found = run(project, *FAST, "-x", "-k", "broken")
    assert (found.code, found.counts["failed"]) == (1, 1)
    assert list(found.statuses().values()) == ["BUILD_ERROR"]


@pytest.mark.exam
def test_workers_of_xdist_send_their_results(project: Path, full_run: Run, run: Callable[..., Run]) -> None:
    """-n 2 finds what one process finds, on the same inputs, with one seed, one document and one table."""
    chosen = ("right", "wrong", "broken", "threshold", "scaled")
    found = run(project, *FAST, "-p", "xdist", "-n", "2", "--cgins-seed=7", "-k", " or ".join(chosen))
    expected = {
        name: one for name, one in full_run.evaluations().items() if any(word in name for word in chosen)
    }
    assert set(found.evaluations()) == set(expected)
    for name, one in found.evaluations().items():
        assert one["verdict"]["status"] == expected[name]["verdict"]["status"]
        for key in ("checks", "power"):
            assert (one["correctness"] or {}).get(key) == (expected[name]["correctness"] or {}).get(key)
    assert found.code == 1
    assert found.document()["seed"] == 7
    assert [one["device"] for one in found.document()["environments"]] == ["cpu"]
    assert re.search(r"^relu +right \(cpu\) +2 +2 PASSED", found.out, re.MULTILINE)


def test_hanging_kernel_costs_its_limit_twice_at_most(project: Path, run: Callable[..., Run]) -> None:
    """It is ended at the limit; cases after its second hang are skipped; other kernels go on."""
    with pytest_cgins.record(project / "traces/tiny", ops=["torch.nn.functional.relu"]):
        for rows in range(1, 4):
            torch.nn.functional.relu(torch.randn(rows, 5))
    (project / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n  relu:\n    op: torch.nn.functional.relu\n    implementations:\n"
        "      - {name: hang,  source: kernels/relu.cpp, defines: {HANG: 1}}\n"
        "      - {name: right,  source: kernels/relu.cpp}\n"
    )
    limit_s = 4
    found = run(project, *FAST, f"--cgins-timeout={limit_s}", "-rs")
    assert found.code == 1
    ended = [one for name, one in found.evaluations().items() if "hang" in name]
    hung = [one for one in ended if one["verdict"]["status"] == "TIMEOUT"]
    skipped = [one for one in ended if one["verdict"]["status"] == "SKIPPED"]
    assert (len(hung), len(skipped)) == (2, 1)
    # Far below the limit that there is without the option, also where the machine is busy.
    assert all(limit_s <= one["seconds"] < 0.7 * TIMEOUT_S for one in hung), hung
    assert {one["verdict"]["reason"] for one in ended} == {"timed-out"}
    assert skipped[0]["verdict"]["message"].startswith("it hung in 2 cases (")
    assert {status for name, status in found.statuses().items() if "right" in name} == {"PASSED"}
    assert "TIMEOUT (timed-out)" in found.out
    assert "it hung in 2 cases" in found.out
    assert re.search(r"^again .*--cgins-timeout=4\.0 ", found.out, re.MULTILINE)


@pytest.mark.exam
def test_interrupted_run_writes_what_it_has(project: Path, run: Callable[..., Run]) -> None:
    """Ctrl-C after the first case: exit 2, and that case is in the document and the table."""
    (project / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'teardown':\n"
        "        raise KeyboardInterrupt\n"
    )
    found = run(project, *FAST, "-k", "broken")
    assert found.code == 2
    assert list(found.statuses().values()) == ["BUILD_ERROR"]
    assert found.document()["exit_status"] == 2
    assert re.search(r"^relu +broken \(cpu\) +1 ", found.out, re.MULTILINE)


def test_unwritable_document_is_not_success(project: Path, run: Callable[..., Run]) -> None:
    """If the JSON cannot be written, a run without failures still does not end in 0."""
    (project / "taken").mkdir()
    (project / "test_fine.py").write_text("def test_fine(): pass\n")
    found = run(project, "--cgins", "--cgins-json=taken", "test_fine.py")
    assert found.code == 4
    assert "--cgins-json was not written" in found.out
    assert list(project.glob(".taken.*")) == []


def test_no_cases_is_pytest_s_exit_5(project: Path, run: Callable[..., Run]) -> None:
    """A session without cases ends as any without tests, and its document says so."""
    found = run(project, *FAST, "-k", "nothing_is_called_this")
    assert found.code == 5
    assert json.loads((project / "report.json").read_text())["evaluations"] == []
