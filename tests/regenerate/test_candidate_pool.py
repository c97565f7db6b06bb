"""Candidates of a batch: built and checked at the same time, each in its own folder, timed in order, nothing built twice."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate import evaluate
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate import targets
from pytest_cgins.regenerate.candidate_gate import CandidateGate, TrialSettings
from pytest_cgins.regenerate.candidate_pool import CandidatePool
from pytest_cgins.regenerate.project_copy import INCUMBENT, ProjectCopy
from pytest_cgins.run.pool import WorkerPool
from tests.adversarial.project import workers_are_forked
from tests.regenerate import scripted
from tests.regenerate.projects import committed, git

pytestmark = pytest.mark.exam

MakeGate = Callable[..., tuple[CandidateGate, ProjectCopy]]
MAIN = "kernels/relu.cpp"
YAML = """\
version: 1
traces: [traces/tiny]
kernels:
  relu:
    op: torch.nn.functional.relu
    source: kernels/relu.cpp
    gate: {tolerate: 40%, catch: 90%}
"""
"""Whatever the noise of a machine, it is soon seen that nothing is that much slower."""


def relu(name: str, expression: str = "EACH < 0 ? 0 : EACH") -> dict[str, str]:
    """A candidate, the only one whose variable has this name."""
    text = scripted.draft("relu", 3).replace("x[i] < 0 ? 0 : x[i]", expression.replace("EACH", f"{name}[i]"))
    return {MAIN: text.replace("const float* x =", f"const float* {name} =")}


@pytest.fixture(autouse=True)
def _workers_share_a_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No folder of a test's own for kernels that are compiled as they run, of which there are none; what times is forked."""
    monkeypatch.setattr(evaluate, "jit_environment", lambda _: {})
    with workers_are_forked():
        yield


@pytest.fixture
def project(made_once: Callable[..., Path], tmp_path: Path) -> Config:
    """A project with one kernel that is right, committed."""
    folder = tmp_path / "project"
    shutil.copytree(
        made_once("scripted", scripted.recorded), folder, ignore=shutil.ignore_patterns("__pycache__")
    )
    committed(folder, {"cgins.yaml": YAML, MAIN: scripted.draft("relu", 3)})
    return configuration.load(folder / "cgins.yaml")


@pytest.fixture
def make_gate(project: Config, reference: WorkerPool, tmp_path: Path) -> Iterator[MakeGate]:
    """Makes a gate with a copy of its own, and ends it."""
    made: list[CandidateGate] = []
    pools: list[CandidatePool] = []

    def make(
        *, threads: int = 0, baseline: str = NONE, **settings: object
    ) -> tuple[CandidateGate, ProjectCopy]:
        (entry,) = project.kernels
        target = targets.target_of(entry, entry.implementations[0], "optimise")
        copy = ProjectCopy(
            project, ("relu", "cpp", "cpu"), tmp_path / f"gate-{len(made)}" / "copy", baseline=baseline
        )
        known = TrialSettings(seed=3, sandbox=None, cache=tmp_path / "cache", **settings)  # type: ignore[arg-type]
        pool = CandidatePool(BuildQueue(cache=tmp_path / "cache"), threads=threads)
        pools.append(pool)
        shared = {"reference": reference, "pool": pool, "trusted_root": project.root}
        made.append(CandidateGate(target, copy, known, **shared, before={}))  # type: ignore[arg-type]
        return made[-1], copy

    yield make
    for pool in pools:
        pool.stop()
    for gate in made:
        gate.close()
    for pool in pools:
        pool.close()


def compiled(records: Mapping[int, logging.LogRecord] | list[logging.LogRecord]) -> int:
    """How many builds found nothing in the cache, and began."""
    return sum(": not in the cache " in record.getMessage() for record in records)


def passes(gate: CandidateGate, files: Mapping[str, str]) -> bool:
    return gate.check(files).evaluations[0].verdict.status is Status.PASSED


def test_each_has_a_folder_of_its_own(make_gate: MakeGate) -> None:
    """Each is judged for itself, whatever the others are, and for what was touched in its own folder alone.

    What lies there after a batch is gone when the next begins, warmed or not.
    """
    gate, copy = make_gate(threads=2)
    batch = [relu("a"), relu("b", "-EACH"), relu("c", "EACH < ? 0"), relu("d")]
    gate.begin(batch, None)
    assert not (copy.top.parent / "copy-0").exists()
    tops = [copy.top, *(copy.top.parent / f"copy-{number}" for number in (1, 2, 3))]
    assert [{MAIN: (top / MAIN).read_text()} for top in tops] == batch
    (tops[1] / "cgins.yaml").write_text("# moved\n")
    (tops[3] / "left.txt").write_text("x")
    verdicts = []
    for files in batch:
        trial = gate.check(files)
        (evaluation,) = trial.evaluations
        verdicts.append((evaluation.verdict.status, gate.touched()))
        assert str(copy.top.parent) not in str(trial)
    assert verdicts == [
        (Status.PASSED, ()),
        (Status.INCORRECT, ("cgins.yaml",)),
        (Status.BUILD_ERROR, ()),
        (Status.PASSED, ("left.txt",)),
    ]
    gate.warm(2)
    gate.begin([relu("e"), relu("f")], None)
    assert passes(gate, relu("f"))
    assert gate.touched() == ()


def test_nothing_is_built_twice_and_times_are_beside_the_champion_of_that_moment(
    make_gate: MakeGate, caplog: pytest.LogCaptureFixture
) -> None:
    """Checks, times, the acceptance, evidence of another run's copy and that run itself take what the first check built.

    The champion may be crowned after the batch began; what probes see while a kernel is timed is told with its answers.
    """
    gate, copy = make_gate()
    first, second = relu("a"), relu("b")
    bases = []
    with caplog.at_level(logging.DEBUG, "pytest_cgins.building.build"):
        gate.begin([first, second], None)
        assert passes(gate, first)
        assert passes(gate, second)
        assert compiled(caplog.records) == 2
        for files, champion in ((first, None), (second, first)):
            (evaluation,) = gate.times(files, champion).evaluations
            assert evaluation.build_seconds == 0
            assert evaluation.measurement is not None
            assert evaluation.correctness is not None
            bases.append(evaluation.measurement.base_revision)
            (seen,) = [probe for probe in evaluation.correctness.probes if probe.name == "after_timing"]
            assert "not timed" not in seen.message
            assert compiled(caplog.records) == 3  # the incumbent, which the first was timed beside
        assert gate.accept(second, goal="optimise").evaluations[0].correctness is not None
        again, _ = make_gate()
        again.begin([second, first], None)
        for files in (second, first):
            assert passes(again, files)
            again.times(files, None)
    assert compiled(caplog.records) == 3
    crowned = git(copy.top, "rev-parse", "refs/tags/champion").strip()
    assert bases == [git(copy.top, "rev-parse", "refs/tags/incumbent").strip(), crowned]
    assert git(copy.top, "show", f"{crowned}:{MAIN}") == first[MAIN]


def test_processes_start_while_candidates_are_checked(
    make_gate: MakeGate, caplog: pytest.LogCaptureFixture
) -> None:
    """All that time a candidate: where importing torch takes 6 s, it would stand still between any two of them."""
    gate, _ = make_gate()
    files = relu("a")
    with caplog.at_level(logging.DEBUG, "pytest_cgins.run.process"):
        gate.begin([files], None)
        gate.check(files)
        caplog.clear()
        gate.times(files, None)
    assert [record.getMessage() for record in caplog.records if " started for " in record.getMessage()] == []
    asked = {record.getMessage().partition(":")[0] for record in caplog.records}
    assert "timing" in asked
    assert not asked & {"timing/base-only", "verification/uninstrumented"}, "it is no faster than its base"


def test_the_end_does_not_wait_for_a_kernel_that_hangs(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while candidates run: all processes end at once, and the gate can be used again."""
    gate, copy = make_gate(threads=2)
    hanging = relu("a", "EACH; for (volatile bool on = true; on;) {} y[i] = 0")
    running: list[Evaluator] = []
    evaluate = Evaluator.evaluate
    monkeypatch.setattr(
        Evaluator, "evaluate", lambda self, case: running.append(self) or evaluate(self, case)
    )
    gate.begin([hanging, relu("b")], None)
    assert passes(gate, relu("b"))
    assert scripted.until(lambda: len(running) == 2, 30.0)
    began = time.monotonic()
    gate.close()
    assert time.monotonic() - began < 20.0
    gate.begin([relu("c")], None)
    assert passes(gate, relu("c"))
    assert copy.touched() == ()


def test_what_lacked_memory_is_checked_once_more_alone(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others it may have had less than it needs: that is not its fault."""
    gate, copy = make_gate(threads=2)
    evaluate, asked = Evaluator.evaluate, []

    def short(self: Evaluator, case: Case) -> Evaluation:
        asked.append(self.config.root)
        found = evaluate(self, case)
        if asked.count(copy.top) != 1 or self.config.root != copy.top:
            return found
        verdict = replace(found.verdict, status=Status.RUNTIME_ERROR, reason=Reason.OUT_OF_MEMORY)
        return replace(found, verdict=verdict)

    monkeypatch.setattr(Evaluator, "evaluate", short)
    gate.begin([relu("a"), relu("b")], None)
    for files in (relu("a"), relu("b")):
        assert passes(gate, files)
    assert asked.count(copy.top) == 2
    assert len(asked) == 3


def test_memory_that_others_hold_while_it_is_alone_costs_no_attempt(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suite counted it as its candidate's only attempt; now the run stops there, and the answer is kept."""
    gate, _ = make_gate(threads=2)
    evaluate = Evaluator.evaluate

    def full(self: Evaluator, case: Case) -> Evaluation:
        found = evaluate(self, case)
        verdict = replace(found.verdict, status=Status.INFRASTRUCTURE, reason=Reason.OUT_OF_MEMORY)
        return replace(found, verdict=verdict)

    monkeypatch.setattr(Evaluator, "evaluate", full)
    gate.begin([relu("a")], None)
    with pytest.raises(RegenerateError, match="cannot be tried here: "):
        gate.check(relu("a"))


@pytest.mark.parametrize("edited", [False, True])
def test_acceptance_is_one_pass_where_the_base_is_the_incumbent(
    project: Config, make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    """Who beats one beats the other; else each is timed beside the candidate, the incumbent at its share of alpha."""
    if edited:
        (project.root / MAIN).write_text(relu("mine")[MAIN])
    gate, copy = make_gate(baseline="HEAD", compile=not edited)
    passes, evaluate_all = [], CandidateGate._all

    def counted(self: CandidateGate, *given: Any, **named: Any) -> list[Evaluation]:
        passes.append(named["baseline"])
        return evaluate_all(self, *given, **named)

    monkeypatch.setattr(CandidateGate, "_all", counted)
    trial = gate.accept(relu("c"), goal="optimise", alpha_share=0.25)
    assert passes == ([copy.against_base, INCUMBENT] if edited else [copy.against_base])
    measured = trial.evaluations[0].measurement
    assert measured is not None
    against = measured.against("base")
    assert against is not None
    assert against.alpha == pytest.approx(0.25 * project.kernels[0].timing.alpha)
    assert (measured.compiled is not None) == (not edited)
