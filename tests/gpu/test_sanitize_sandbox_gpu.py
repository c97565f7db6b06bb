"""compute-sanitizer in the sandbox, as regeneration accepts kernels: it finds there what it finds outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_cgins import config
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run import sanitizer
from pytest_cgins.run.sandbox.sandbox import Sandbox, ways

from .test_sanitize_gpu import BUGS, HONEST, SEED, project

pytestmark = pytest.mark.gpu

WAYS = ways()


@pytest.fixture(scope="module", params=[way for way, trouble in WAYS.items() if not trouble] or [None])
def evaluations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Evaluation]]:
    """A right kernel, one with a bug, and the right one again, in each way to make a sandbox."""
    if request.param is None:
        pytest.skip(f"this host gives no sandbox: {WAYS}")
    if not sanitizer.find():
        pytest.skip(f"{sanitizer.PROGRAM} is not installed")
    folder = tmp_path_factory.mktemp("project")
    file = project(folder, {"honest": HONEST, "memcheck": BUGS["memcheck"], "honest_again": HONEST})
    evaluator = Evaluator(
        config.load(file), seed=SEED, timing=False, sanitize=("memcheck",), sandbox=Sandbox(way=request.param)
    )
    try:
        yield {case.kernel: evaluator.evaluate(case) for case in evaluator.cases()}
    finally:
        evaluator.close()


def memcheck(evaluation: Evaluation) -> Probe:
    """What the tool told."""
    assert evaluation.correctness is not None, evaluation.verdict
    return next(probe for probe in evaluation.correctness.probes if probe.name == "memcheck")


@pytest.mark.parametrize("name", ["honest", "honest_again"])
def test_a_right_kernel_has_no_findings(evaluations: dict[str, Evaluation], name: str) -> None:
    """It was run under the tool, and passes."""
    probe = memcheck(evaluations[name])
    assert (probe.outcome, probe.message) == ("held", "")
    assert evaluations[name].verdict.status is Status.PASSED


def test_a_bug_is_named_with_its_line(evaluations: dict[str, Evaluation]) -> None:
    """The log comes out of the sandbox."""
    probe = memcheck(evaluations["memcheck"])
    assert (probe.outcome, probe.reason) == ("tripped", Reason.MEMCHECK), probe
    line = next(number for number, text in enumerate(BUGS["memcheck"].splitlines(), 1) if "HERE" in text)
    assert f"memcheck.cu:{line}" in probe.message
