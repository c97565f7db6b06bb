"""Processes of their own for kernels, and ncu around them, played by a script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.config import load
from pytest_cgins.core.case import Case
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate import candidate_gate
from pytest_cgins.regenerate.candidate_gate import with_report
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.profiling import profile
from pytest_cgins.regenerate.profiling.child import Child
from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile
from pytest_cgins.regenerate.profiling.ncu import Ncu
from pytest_cgins.regenerate.search.profile_figures import gathered
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.evaluations import make_evaluation
from tests.regenerate import journals
from tests.regenerate.profiling.outputs import DETAILS_2025, RAW_2025
from tests.regenerate.profiling.test_triggers import ROOFLINE

PROJECT = Path(__file__).parents[2] / "plugin" / "project"
# Refuses what it is told to, else "profiles" without running anything; prints the tables of a report.
NCU = r"""#!{python}
import pathlib, sys
words = sys.argv[1:]
if "--import" in words:
    text = pathlib.Path({table!r}).with_suffix("." + words[words.index("--page") + 1]).read_text()
    if "--log-file" in words:
        pathlib.Path(words[words.index("--log-file") + 1]).write_text(text)
    else:
        print(text)
elif {refuses!r} and {refuses!r} in words:
    print("==ERROR== {error}")
    sys.exit(1)
else:
    pathlib.Path(words[words.index("--export") + 1] + ".ncu-rep").write_text("report")
"""


@pytest.fixture(scope="module")
def evaluator(recorded: Path) -> Iterator[Evaluator]:
    """Of the tiny project with its pack."""
    with closing(Evaluator(load(recorded / "cgins.yaml"), seed=0, timing=False, probes="off")) as made:
        yield made


def case_of(evaluator: Evaluator, implementation: str) -> Case:
    return next(case for case in evaluator.cases() if case.name.startswith(f"relu/{implementation}/"))


@pytest.mark.exam
@pytest.mark.parametrize(
    ("implementation", "trouble", "fenced"),
    [
        ("cpu-right", "", False),
        ("cpu-right", "", True),
        ("cpu-refuse", "LaunchError: relu/refuse: relu returned 1: 6 elements are too many", False),
        ("cpu-crash", "last words", True),
    ],
)
def test_a_kernel_runs_in_a_process_of_its_own(
    evaluator: Evaluator, tmp_path: Path, implementation: str, trouble: str, fenced: bool
) -> None:
    """It is loaded and called as in a worker; what it raises, and its last words, are told, from a sandbox too."""
    root = evaluator.config.root
    fence = Sandbox(devices=False).around(visible=(root, default_cache()), hidden=())
    case = case_of(evaluator, implementation)
    with evaluator.made_ready(case) as ready:
        child = Child(tmp_path, ready, import_root=root, sandbox=fence if fenced else None)
        told = child.begin("call").go()
    assert trouble in f"{told.trouble}\n" if trouble else told.trouble == "", told
    assert ("warm_seconds" in told.answer) == (not trouble)


def ncu(folder: Path, *, refuses: str = "", error: str = "", table: str = RAW_2025) -> Ncu:
    file, program = folder / "table", folder / "ncu"
    file.with_suffix(".raw").write_text(table)
    file.with_suffix(".details").write_text(DETAILS_2025)
    program.write_text(NCU.format(python=sys.executable, table=str(file), refuses=refuses, error=error))
    program.chmod(0o755)
    return Ncu(path=str(program), version="2025.3")


def counted(evaluator: Evaluator, folder: Path, program: Ncu | None) -> profile._Findings:
    """What is known of a case after ncu has run."""
    return profiled(evaluator, folder, program)[0]


def profiled(
    evaluator: Evaluator, folder: Path, program: Ncu | None
) -> tuple[profile._Findings, CaseProfile]:
    """The same, and the document of the case."""
    case = case_of(evaluator, "cpu-right")
    profiler = profile.Profiler(evaluator, folder / "out", program=program)
    found = profile._Findings()
    (folder / "child").mkdir()
    with evaluator.made_ready(case) as ready:
        child = Child(folder / "child", ready, import_root=evaluator.config.root)
        profiler._counters(child, case, profiler._begin_counters(child, profile.EXTRAS[0]), found)
        return found, profiler._profile(case, ready.compiled, found)


@pytest.mark.exam
def test_launches_are_read_and_the_report_is_kept(evaluator: Evaluator, tmp_path: Path) -> None:
    """Each launch has its share of the time; the report lies beside the document, named as the case."""
    found = counted(evaluator, tmp_path, ncu(tmp_path))
    assert [one.time_share for one in found.kernels] == [0.8, 0.2]
    assert found.degraded == []
    (note,) = found.notes
    assert "fp32_pct" in note
    assert "dram_pct" not in note
    assert found.report.startswith("relu_cpu-right_tiny_f32-2x3-")
    assert (tmp_path / "out" / found.report).read_text() == "report"


def test_counters_that_are_in_no_section_may_be_refused(evaluator: Evaluator, tmp_path: Path) -> None:
    """Then it is asked without them, and that is told."""
    found = counted(evaluator, tmp_path, ncu(tmp_path, refuses="--metrics", error="Failed to find metric"))
    assert len(found.kernels) == 2
    assert found.notes[0] == "ncu refused counters: asked for again with 0 besides its sections'"


@pytest.mark.parametrize(
    ("error", "told"),
    [("ERR_NVGPUCTRPERM - no", "--cap-add=SYS_ADMIN"), ("Internal error", "ncu: Internal error")],
)
def test_without_permission_the_rest_goes_on(
    evaluator: Evaluator, tmp_path: Path, error: str, told: str
) -> None:
    """Nothing is raised: what is missing is told with its remedy."""
    found = counted(evaluator, tmp_path, ncu(tmp_path, refuses="--section", error=error))
    assert found.kernels == ()
    assert told in found.degraded[0]


def test_without_ncu_it_is_told_how_to_get_it(evaluator: Evaluator, tmp_path: Path) -> None:
    """As is an output that has no table in it."""
    assert counted(evaluator, tmp_path, None).degraded == [profile.NO_NCU]


def test_a_report_without_launches_is_told(evaluator: Evaluator, tmp_path: Path) -> None:
    """The name of the report is in the text."""
    found = counted(evaluator, tmp_path, ncu(tmp_path, table="no table"))
    assert "profile.ncu-rep has no launch that can be read" in found.degraded[0]


@pytest.mark.parametrize("number", [0, 2])
def test_a_search_keeps_the_report_and_an_analysis(evaluator: Evaluator, tmp_path: Path, number: int) -> None:
    """Both lie beside the evidence of the candidate; a person reads launch by launch what ncu found and advises."""
    target = journals.target("relu", device="cuda", goal="optimise")
    with Journal.resume(journals.journal(tmp_path / "cgins.yaml", target).folder) as journal:
        place = journal.folder_of(target, number) if number else journal.folder / target.name
        found = with_report(
            profiled(evaluator, tmp_path, ncu(tmp_path))[1], tmp_path / "out", journal.folder / target.name
        )
        measured = make_evaluation(times_ns=(4096.0, 8000.0)).measurement
        assert measured is not None
        evidence = gathered(found, replace(measured, roofline=replace(ROOFLINE, flops=2**20)))
        journal.keep_evidence(target, number, evidence)
        kept = journal.evidence(target, number)
        assert kept is not None
        assert (kept.report, kept.text()) == (found.report, evidence.text())
        assert (place / kept.report).read_text() == "report"
        assert len(list(journal.folder.rglob("*.ncu-rep"))) == 1
    assert "50% of the device's bandwidth, 85% would be near its peak, 256 GFLOP/s" in kept.text()
    text = (place / "analysis.md").read_text()
    for words in (
        "Memory bounds it; its largest gap is compute, 0.82; most is to be won in latency.", "<code>256 GFLOP/s</code>", found.report,
        "map_packs&lt;float, Gelu&gt;", "<td>80%</td><td>0.78</td><td>0.39</td><td>0.60</td><td>memory</td><td>compute</td>",
        "DRAM throughput", "&lt;b&gt;or&lt;/b&gt; fewer registers. (estimated speedup: 34.6%)", "too small to fill",
    ):  # fmt: skip
        assert words in text, text


def test_a_report_for_which_there_is_no_room_is_told(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reports of a search together have a limit in bytes; what is over it is left out, and the analysis says so."""
    monkeypatch.setattr(candidate_gate, "MOST_REPORTS_NBYTES", 10)
    kept, written = tmp_path / "kept", tmp_path / "out"
    (kept / "attempt-01").mkdir(parents=True)
    (kept / "attempt-01" / "c.ncu-rep").write_text("12345")
    full = profiled(evaluator, tmp_path, ncu(tmp_path))[1]
    made = with_report(full, written, kept)
    assert made.report == ""
    assert made.notes[-1].startswith("ncu's report was left out, 6 bytes: ")
    assert "report was left out, 6 bytes" in gathered(made, None).analysis
    assert gathered(made, None).text() == gathered(full, None).text()
    assert [file.name for file in kept.rglob("*.ncu-rep")] == ["c.ncu-rep"]
    assert with_report(full, written, None).report == ""
