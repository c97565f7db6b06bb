"""Launches that begin before the work ahead of them has ended, on a GPU: those that do not wait are found, those that do pass."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

torch = pytest.importorskip("torch")

import pytest_cgins  # noqa: E402
from pytest_cgins import config  # noqa: E402
from pytest_cgins.core.verdict import Reason, Status  # noqa: E402
from pytest_cgins.gate.evaluate import Evaluator  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
        reason="needs an NVIDIA GPU of Hopper or later",
    ),
]

SOURCES = Path(__file__).parents[1] / "planted/device_order"
KERNELS = sorted(file.stem for file in SOURCES.glob("*.cu"))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """All of them in one project, on a small and on a large input."""
    folder = tmp_path_factory.mktemp("device_order")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    generator = torch.Generator().manual_seed(7)
    with pytest_cgins.record(folder / "traces/all", ops=["torch.nn.functional.relu"]):
        for shape in ((64, 1000), (1024, 2048)):
            torch.nn.functional.relu(torch.randn(shape, generator=generator).bfloat16())
    kernels = {
        name: {
            "op": "torch.nn.functional.relu",
            "contract": "launcher",
            # What the calls are not about: these take dense tensors of numbers.
            "probes": {probe: {"off": "dense numbers only"} for probe in ("layouts", "special_values")},
            "source": f"{name}.cu",
        }
        for name in KERNELS
    }
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "traces": ["traces/all"], "kernels": kernels}))
    evaluator = Evaluator(config.load(file), seed=20, timing=False)
    yield evaluator
    evaluator.close()


@pytest.mark.parametrize("kernel", KERNELS)
def test_whoever_waits_passes_and_nobody_else(gate: Evaluator, kernel: str) -> None:
    """One case at least shows the race, or it shows by itself on a GPU with others; honest kernels pass all."""
    verdicts = [gate.evaluate(case).verdict for case in gate.cases() if case.kernel == kernel]
    told = "\n".join(f"{each.status.value} ({each.reason.value}): {each.message}" for each in verdicts)
    assert len(verdicts) == 2
    if "honest" in kernel:
        assert {each.status for each in verdicts} == {Status.PASSED}, told
    else:
        reasons = {each.reason for each in verdicts}
        assert Reason.DEVICE_ORDER in reasons or reasons == {Reason.NOT_REPEATABLE}, told
        assert "cudaGridDependencySynchronize" in told or Reason.DEVICE_ORDER not in reasons
