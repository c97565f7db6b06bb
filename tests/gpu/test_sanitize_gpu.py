"""Kernels with one bug each under compute-sanitizer: the tool that is made for it names it, with its line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.core.options import SANITIZERS
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run import sanitizer

pytestmark = pytest.mark.gpu

SEED = 3
HEADER = """\
// cgins: relu(Tensor input) -> Tensor
// cgins-launch: kernel=relu grid=(ceil_div(numel(out), 128)) block=(128) args=(input, out, numel(out))
"""
HONEST = (
    HEADER
    + """\
__global__ void relu(const float* x, float* y, int64_t n) {
  __shared__ float part[128];
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  float right = part[127 - threadIdx.x];
  __syncthreads();
  part[127 - threadIdx.x] = right <= 0 ? 0 : right;
  __syncthreads();
  if (i < n) y[i] = part[threadIdx.x];
}
"""
)
BUGS = {
    "memcheck": HEADER
    + """\
__global__ void relu(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i <= n) y[i] = x[i] <= 0 ? 0 : x[i];  // HERE
}
""",
    "racecheck": HEADER
    + """\
__global__ void relu(const float* x, float* y, int64_t n) {
  __shared__ float part[128];
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  part[127 - threadIdx.x] = i < n ? x[i] : 0;  // HERE
  float mine = part[threadIdx.x];
  if (i < n) y[i] = mine <= 0 ? 0 : mine;
}
""",
    "initcheck": HEADER
    + """\
__global__ void relu(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float left = y[i];  // HERE
  y[i] = left == 12345 ? 1 : x[i] <= 0 ? 0 : x[i];
}
""",
    "synccheck": HEADER
    + """\
__global__ void relu(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (threadIdx.x < 40) __syncthreads();  // HERE
  if (i < n) y[i] = x[i] <= 0 ? 0 : x[i];
}
""",
}
ILLEGAL = (
    HEADER
    + """\
__global__ void relu(const float* x, float* y, int64_t n) {
  y[int64_t{1} << 40] = x[0];  // HERE
}
"""
)


def project(folder: Path, sources: Mapping[str, str]) -> Path:
    """A project of one recorded op and a device kernel a source, by name; gives its cgins.yaml."""
    (folder / "kernels").mkdir()
    for name, text in sources.items():
        (folder / "kernels" / f"{name}.cu").write_text(text)
    with pytest_cgins.record(folder / "traces" / "relu", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.linspace(-2, 2, 1000))
    kernels = {
        name: {
            "op": "torch.nn.functional.relu",
            "implementations": [
                {"name": "it", "device": "cuda", "contract": "device", "source": f"kernels/{name}.cu"}
            ],
        }
        for name in sources
    }
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "traces": ["traces/relu"], "kernels": kernels}))
    return file


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Evaluation]]:
    """Each kernel under all tools, one after another in the same workers."""
    program = sanitizer.find()
    if not program:
        pytest.skip(f"{sanitizer.PROGRAM} is not installed")
    said = subprocess.run(
        [program, "--tool", "memcheck", "true"], capture_output=True, text=True, check=False
    )
    if why := sanitizer.trouble(said.stdout):
        pytest.skip(f"{sanitizer.PROGRAM} does not work on this machine: {why}")
    folder = tmp_path_factory.mktemp("project")
    file = project(folder, {"honest": HONEST, **BUGS, "illegal": ILLEGAL, "honest_again": HONEST})
    evaluator = Evaluator(config.load(file), seed=SEED, timing=False, sanitize=SANITIZERS)
    try:
        yield {case.kernel: evaluator.evaluate(case) for case in evaluator.cases()}
    finally:
        evaluator.close()


def _found(evaluation: Evaluation) -> dict[str, Probe]:
    assert evaluation.correctness is not None, evaluation.verdict
    return {probe.name: probe for probe in evaluation.correctness.probes if probe.name in SANITIZERS}


@pytest.mark.parametrize("name", ["honest", "honest_again"])
def test_a_right_kernel_has_no_findings(evaluations: dict[str, Evaluation], name: str) -> None:
    """Under all four tools, before and after kernels with findings in the same worker."""
    found = _found(evaluations[name])
    assert {tool: (probe.outcome, probe.message) for tool, probe in found.items()} == dict.fromkeys(
        SANITIZERS, ("held", "")
    )
    assert evaluations[name].verdict.status is Status.PASSED


@pytest.mark.parametrize("tool", BUGS)
def test_a_bug_is_named_by_its_tool_with_its_line(evaluations: dict[str, Evaluation], tool: str) -> None:
    """The line of the kernel's own source is in the message."""
    probe = _found(evaluations[tool])[tool]
    assert (probe.outcome, probe.reason) == ("tripped", Reason(tool)), probe
    assert f"{tool}.cu:{_line(BUGS[tool])}" in probe.message


def _line(source: str) -> int:
    return next(number for number, text in enumerate(source.splitlines(), 1) if "HERE" in text)


def test_where_a_kernel_broke_its_context_is_told(evaluations: dict[str, Evaluation]) -> None:
    """The verdict is that of the run without the tools, and has the line that memcheck found."""
    verdict = evaluations["illegal"].verdict
    assert (verdict.status, verdict.reason) == (Status.RUNTIME_ERROR, Reason.ILLEGAL_ADDRESS)
    assert "compute-sanitizer (memcheck): Invalid __global__ write of size 4 bytes" in verdict.message
    assert f"illegal.cu:{_line(ILLEGAL)}" in verdict.message


def test_a_finding_of_a_kernel_with_right_numbers_fails_its_case(
    evaluations: dict[str, Evaluation],
) -> None:
    """What reads memory that nothing wrote may well give the right numbers; it does not pass."""
    assert evaluations["initcheck"].verdict.status.outcome == "fail"
