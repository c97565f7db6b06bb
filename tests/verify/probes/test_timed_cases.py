"""Probes of timing from the case to the verdict: measured in one worker, judged in another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins.config import load
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run.kernel_timing import NO_TIMING, UNTIMED
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.verify.probes.registry import TIMED

KERNELS = """
import sys
import time

import torch

calls = ticks = 0
answers = {}

def right(input):
    return torch.clamp(input, min=0)

def counts(input):
    global calls
    calls += 1
    return torch.clamp(input, min=0 if calls < 300 else -0.5)

def keeps(input):
    key = input.numpy().tobytes()
    if key not in answers:
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            answers[key] = torch.clamp(input, min=0)
    return answers[key].clone()

clock = time.perf_counter_ns

def slows_the_clock(input):
    global ticks
    ticks += 1
    if ticks == 300:
        time.perf_counter_ns = lambda: clock() // 2
    return torch.clamp(input, min=0)

def writes_samples(input):
    global calls
    calls += 1
    frame = sys._getframe() if calls > 300 else None
    while frame is not None:
        for sample in frame.f_locals.get("samples", {}).get("torch", []):
            calls += 1
        frame = frame.f_back
    return torch.clamp(input, min=0)

def slows_torch(input):
    global calls
    calls += 1
    if calls > 300:
        torch.set_float32_matmul_precision("high")
    return torch.clamp(input, min=0)

def wrong(input):
    return torch.abs(input)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with a relu call, and kernels that are all right as long as nobody times them."""
    folder = tmp_path_factory.mktemp("timed")
    with pytest_cgins.record(folder / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(40, 40))
    (folder / "relus.py").write_text(KERNELS)
    names = ("right", *SUSPECT, "wrong")
    implementations = ", ".join(f"{{name: {name}, device: cpu, target: 'relus:{name}'}}" for name in names)
    (folder / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        f"  relu: {{op: torch.nn.functional.relu, implementations: [{implementations}]}}\n"
    )
    return folder


@pytest.fixture(scope="module")
def found(project: Path, reference: WorkerPool) -> dict[str, Evaluation]:
    """What becomes of each, timed."""
    return evaluated(project, reference, timing=True)


def evaluated(project: Path, reference: WorkerPool | None, *, timing: bool) -> dict[str, Evaluation]:
    evaluator = Evaluator(
        load(project / "cgins.yaml"), seed=3, timing=timing, probes="fast", reference=reference
    )
    try:
        return {case.implementation: evaluator.evaluate(case) for case in evaluator.cases()}
    finally:
        evaluator.close()


def timed_probes(evaluation: Evaluation) -> dict[str, Probe]:
    assert evaluation.correctness is not None
    return {probe.name: probe for probe in evaluation.correctness.probes if probe.name in TIMED}


@pytest.mark.exam
def test_an_honest_kernel_holds_all_and_has_a_floor(found: dict[str, Evaluation]) -> None:
    """Measured, with the least time that is possible beside the one that was taken."""
    verdict = found["right"].verdict
    assert verdict.status is Status.PASSED, verdict.message
    assert 0 < verdict.numbers["floor_ns_per_call"] < verdict.numbers["kernel_median_ns_per_call"]
    outcomes = {name: probe.outcome for name, probe in timed_probes(found["right"]).items()}
    assert outcomes == dict.fromkeys(TIMED, "held") | {"l2_carve_out": "not-run"}


SUSPECT = {
    "counts": (Reason.WRONG_AFTER_TIMING, "right when it was verified, wrong in the last timed call ("),
    # Verification saw right answers only.
    "keeps": (Reason.STALE_ANSWER, "results are kept by their inputs' content"),
    # Replaced or set in the timing worker alone, after more calls than verification makes.
    "slows_the_clock": (Reason.TAMPERING, "time.perf_counter_ns"),
    "slows_torch": (
        Reason.TAMPERING,
        "set the float32 matmul precision from highest to high (as it was timed)",
    ),
    # Where only the timer stands on the stack.
    "writes_samples": (Reason.SNOOPING, "walks the stack (relus.py, line "),
}


@pytest.mark.exam
@pytest.mark.parametrize(("name", "reason", "words"), [(name, *row) for name, row in SUSPECT.items()])
def test_what_a_kernel_does_only_while_it_is_timed_is_seen(
    found: dict[str, Evaluation], name: str, reason: Reason, words: str
) -> None:
    """Each is suspect by its name, and its timings are kept."""
    verdict = found[name].verdict
    assert (verdict.status, verdict.reason) == (Status.SUSPECT, reason)
    assert words in verdict.message
    assert found[name].measurement is not None
    assert "speedup_vs_torch" in verdict.numbers


@pytest.mark.exam
def test_a_wrong_kernel_is_not_timed(found: dict[str, Evaluation]) -> None:
    """The probes say so."""
    assert found["wrong"].verdict.status is Status.INCORRECT
    assert {probe.message for probe in timed_probes(found["wrong"]).values()} == {UNTIMED}


@pytest.mark.exam
def test_without_timing_the_probes_are_not_run(project: Path, reference: WorkerPool) -> None:
    """And the report names the option."""
    evaluation = evaluated(project, reference, timing=False)["counts"]
    assert evaluation.verdict.status is Status.PASSED
    probes = timed_probes(evaluation)
    assert set(probes) == TIMED
    assert {(probe.outcome, probe.message) for probe in probes.values()} == {("not-run", NO_TIMING)}


@pytest.mark.exam
def test_what_the_op_s_own_module_sets_is_not_the_kernel_s_doing(tmp_path: Path) -> None:
    """It is imported while the timing worker prepares torch's arm, and may choose what torch runs."""
    (tmp_path / "setting_models.py").write_text(
        "import pytest_cgins\nimport torch\ntorch.backends.cudnn.benchmark = True\n"
        "@pytest_cgins.mark\ndef double(x):\n    return x + x\n"
    )
    (tmp_path / "doubles.py").write_text("def double(x):\n    return x * 2.0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        import setting_models  # type: ignore[import-not-found]

        with pytest_cgins.record(tmp_path / "traces/tiny", ops=["setting_models.double"]):
            setting_models.double(torch.randn(40, 40))
    torch.backends.cudnn.benchmark = False
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n  double: {op: setting_models.double, "
        "implementations: [{name: honest, device: cpu, target: 'doubles:double'}]}\n"
    )
    verdict = evaluated(tmp_path, None, timing=True)["honest"].verdict
    assert verdict.status is Status.PASSED, verdict.message
