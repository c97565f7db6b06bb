"""`cgins bench-model` on a GPU: swaps are captured in a graph, and take no time of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins.app.whole_model.document import ModelBench, ModelBenches
from pytest_cgins.core import documents

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
MODELS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x


def make():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(64, 256)

class Told(Net):
    def forward(self, x):
        if capturing():
            x = x.sin().exp().cos()
        return super().forward(x)

def told_by_python():
    global capturing
    capturing = lambda: torch.cuda.is_current_stream_capturing()
    return Told().eval(), torch.randn(64, 256)

def told_by_c():
    global capturing
    capturing = torch._C._cuda_isCurrentStreamCapturing
    return Told().eval(), torch.randn(64, 256)
"""


def benched(tmp_path: Path, make: str) -> ModelBench:
    """A model of `MODELS` with the example's gelu, timed."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "example_project", project, ignore=shutil.ignore_patterns(".cgins", "traces"))
    (project / "bench.py").write_text(MODELS)
    call = "import sys; from pytest_cgins.app.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", call, "bench-model", f"bench:{make}", "--kernel", "gelu/cuda", "--device", "cuda"],
        cwd=project, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = documents.load(ModelBenches, (project / ".cgins/model_bench.json").read_bytes()).models
    assert made.measurement is not None
    return made


def test_a_model_is_captured_with_kernels_in_it(tmp_path: Path) -> None:
    """Every call goes to the kernel; both arms are graphs, so that a swap costs less than what Python does for it."""
    made = benched(tmp_path, "make")
    (row,) = made.kernels
    assert (row.calls, row.left) == (8, {})
    assert made.measurement.method == "cuda-graph", made.measurement.notes
    assert made.difference is not None
    assert made.difference.relative_rms < 1e-5
    assert made.measurement.kernel.median_ns_per_call < 2 * made.ratios[0].ns_per_call


def test_a_model_that_asks_does_in_a_capture_what_it_does_in_a_run(tmp_path: Path) -> None:
    """transformers asks torch, and would do other work: it hears that nothing is captured."""
    made = benched(tmp_path, "told_by_python")
    assert made.measurement.method == "cuda-graph", made.measurement.notes


def test_a_model_that_does_other_work_in_a_capture_is_not_timed_there(tmp_path: Path) -> None:
    """What it knows without asking torch's function cannot be kept from it: its time is that of runs, and this is said."""
    made = benched(tmp_path, "told_by_c")
    assert made.measurement.method != "cuda-graph"
    (note,) = [note for note in made.measurement.notes if "other work" in note]
    assert "1 × aten.sin.default more" in note


def test_a_patched_model_is_captured_and_compiled(tmp_path: Path) -> None:
    """Kernels answer in a CUDA graph that a user captures, and in what torch.compile makes of the model."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "example_project", project, ignore=shutil.ignore_patterns(".cgins", "traces"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()).cuda().eval()
    x = torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        plain = model(x)
        with pytest_cgins.patch(model, project / "cgins.yaml", kernels=["gelu/cuda"]) as patched:
            for _ in range(2):
                model(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = model(x)
            x.mul_(0.5)
            graph.replay()
            compiled = torch.compile(model, backend=patched.backend, fullgraph=True)(x)
        expected = model(x)
    assert patched.counts()["torch.nn.functional.gelu"].hits >= 3
    assert not torch.equal(expected, plain)
    torch.testing.assert_close(captured, expected)
    torch.testing.assert_close(compiled, expected)
