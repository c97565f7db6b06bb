"""Kernels of two ranks with NCCL, a GPU each: those with a bug are told from honest ones as with gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from tests.planted.ranks import project
from tests.planted.ranks.test_ranks import FOUND, evaluated, require_found

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """All of them with NCCL."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"two ranks need a GPU each, and this machine has {torch.cuda.device_count()}")
    evaluator = project.evaluator(
        project.make(tmp_path_factory.mktemp("ranks"), project.ON_GPUS, device="cuda"), limit_s=12.0
    )
    yield evaluator
    evaluator.close()


@pytest.mark.parametrize("kernel", [name for name in FOUND if name in project.ON_GPUS])
def test_a_bug_is_found_by_name_on_gpus(gate: Evaluator, kernel: str) -> None:
    """The same with NCCL."""
    require_found(evaluated(gate, kernel), kernel)


@pytest.mark.parametrize("kernel", [name for name in project.ON_GPUS if name not in FOUND])
def test_an_honest_kernel_passes_on_gpus(gate: Evaluator, kernel: str) -> None:
    """The same with NCCL, and kernels that read each other's memory."""
    found = evaluated(gate, kernel)
    assert found.verdict.status is Status.PASSED, f"{found.verdict.message}\n{found.output}"


def test_fewer_gpus_than_ranks(tmp_path: Path) -> None:
    """Nothing is run, and the reason counts."""
    gate = project.evaluator(project.make(tmp_path, {"ring_sum": "summed"}, device="cuda", ranks=64))
    try:
        found = evaluated(gate, "ring_sum")
    finally:
        gate.close()
    assert (found.verdict.status, found.verdict.reason) == (Status.SKIPPED, Reason.DEVICE_ABSENT)
    assert found.verdict.message.startswith("64 ranks need a cuda device each, and ")
