"""Kernels that break their worker while it holds a GPU, between right ones in one session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

torch = pytest.importorskip("torch")

from pytest_cgins.core.verdict import Status  # noqa: E402
from pytest_cgins.run.limits import MEMORY_VARIABLE  # noqa: E402
from tests.faults import project  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, project.Outcome]:
    """What became of each fault, by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MEMORY_VARIABLE, "8GiB")
        found = project.run(
            tmp_path_factory.mktemp("faults") / "project",
            "cuda",
            project.faults_of("cuda"),
            timeout_s=TIMEOUT_S,
            probes="off",
        )
    return {outcome.fault.name: outcome for outcome in found}


@pytest.mark.parametrize("fault", project.faults_of("cuda"), ids=lambda fault: fault.name)
def test_a_fault_is_called_by_its_name(outcomes: dict[str, project.Outcome], fault: project.Fault) -> None:
    """CUDA's own errors have their reasons, and so has everything that can happen on the host."""
    assert outcomes[fault.name].reason is fault.reason


@pytest.mark.parametrize("fault", project.faults_of("cuda"), ids=lambda fault: fault.name)
def test_a_fault_costs_its_own_case_only(outcomes: dict[str, project.Outcome], fault: project.Fault) -> None:
    """The next case runs in a fresh context, and finds what it finds without the fault."""
    assert outcomes[fault.name].cases_lost == 1
    assert outcomes[fault.name].others_equal


def test_a_hang_on_the_gpu_is_a_timeout(outcomes: dict[str, project.Outcome]) -> None:
    """A kernel that never ends on the GPU is killed with its context, in bounded time."""
    outcome = outcomes["hang-on-gpu"]
    assert outcome.status is Status.TIMEOUT
    assert outcome.seconds < 6 * TIMEOUT_S
