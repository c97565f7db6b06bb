"""`models` of a `cgins.yaml`: whole models as items of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_cgins.app.whole_model.end_to_end import Expected
from pytest_cgins.app.whole_model.workload import run_of
from pytest_cgins.config import Tolerance
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.report.html.page import render
from tests.forked_python import ForkedPython
from tests.repository import commit, git

RELU = """
// cgins: relu(Tensor input) -> Tensor
#include <cgins.h>
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
"""
WAITS = """
#include <chrono>
static void wait() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(4);
  while (std::chrono::steady_clock::now() < end) {}
}
"""
MODELS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.sigmoid(torch.nn.functional.relu(self.first(x))).softmax(-1)


def make():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(64, 64)


def closure():
    model, x = make()
    return lambda: model(x)
"""
CONFIG = """
version: 1
traces: [traces/net]
gate: {tolerate: 50%, catch: 100%, fail_on: regression}
kernels:
  relu: {op: torch.nn.functional.relu, device: cpu, source: relu.cpp}
  sigmoid: {op: torch.sigmoid, device: cpu, source: sigmoid.cpp}
models:
  net: {make: 'models:make', device: cpu, kernels: [relu]}
  wrong: {make: 'models:make', device: cpu}
  closure: {make: 'models:closure', device: cpu, kernels: [relu]}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, forked_torch: ForkedPython) -> Path:
    """Models, a right kernel that was quicker at the base, and one that is wrong."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "models.py").write_text(MODELS)
    (folder / "record.py").write_text("import models\nmodel, x = models.make()\nmodel(x)\n")
    (folder / "cgins.yaml").write_text(CONFIG)
    (folder / "relu.cpp").write_text(RELU)
    (folder / "sigmoid.cpp").write_text(RELU.replace("relu", "sigmoid"))
    ops = "torch.nn.functional.relu,torch.sigmoid"
    words = ["record", "record.py", "--out", "traces/net", "--ops", ops]
    done = forked_torch.run(
        ["-c", "from pytest_cgins.app.cli import main; import sys; sys.exit(main())", *words], cwd=folder
    )
    assert done.returncode == 0, done.stderr
    git(folder, "init", "-q")
    commit(folder)
    (folder / "relu.cpp").write_text(WAITS + RELU.replace("return 0", "wait(); return 0"))
    return folder


def gated(project: Path, forked: ForkedPython, *words: str) -> tuple[int, SessionReport]:
    done = forked.run(
        ["-m", "pytest", "--cgins", "-p", "no:cacheprovider", "--cgins-json", "out.json", *words],
        cwd=project,
        timeout=600,
    )
    return done.returncode, documents.load(SessionReport, (project / "out.json").read_bytes())


@pytest.mark.exam
def test_outputs_are_held_against_the_whole_model_in_fp64(project: Path, forked_torch: ForkedPython) -> None:
    """A wrong kernel is named; what cannot be run in fp64 needs a tolerance; without timing nothing is timed."""
    code, report = gated(project, forked_torch, "--cgins-no-timing", "-k", "wrong or closure")
    assert code == 1
    found = {one.case.kernel: one for one in report.evaluations}
    verdicts = {name: (one.verdict.status.value, one.verdict.reason.value) for name, one in found.items()}
    assert verdicts == {
        "wrong": ("INCORRECT", "reference-mismatch"),
        "closure": ("RUNTIME_ERROR", "raised"),
    }  # fmt: skip
    wrong = found["wrong"].verdict.message
    assert "the output differs from the fp64 reference on the model's inputs" in wrong
    assert wrong.endswith("wrong with the kernel of torch.sigmoid alone")
    assert "give it a tolerance: {rtol: 1e-2, atol: 1e-3}" in found["closure"].verdict.message
    assert found["wrong"].measurement is None
    assert [(one.kernel, one.calls) for one in found["wrong"].swapped] == [
        ("relu/cpp", 1),
        ("sigmoid/cpp", 1),
    ]


@pytest.mark.exam
def test_a_model_that_its_kernels_slow_down_fails(project: Path, forked_torch: ForkedPython) -> None:
    """Against the base revision, and a second process confirms it; the report has what each op takes."""
    code, report = gated(project, forked_torch, "-k", "model/net")
    assert code == 1
    (net,) = report.evaluations
    assert (net.verdict.status.value, net.verdict.reason.value) == ("SLOWER", "slower-than-base")
    assert net.measurement is not None
    assert [one.against for one in net.measurement.comparisons] == ["base"]
    assert len(net.measurement.base_revision) == 40
    assert net.measurement.confirmation is not None
    assert net.plain is not None
    assert net.plain.base_ns is not None
    assert net.plain.kernel_ns > 4e6 > net.plain.base_ns
    (relu,) = net.swapped
    assert relu.kernel_ns_per_run > 4e6 > relu.torch_ns_per_run > 0
    page = render(report)
    assert "Time of each op in a run of the model" in page
    assert "Mean of ten runs, with kernels" in page


def test_what_a_model_is_may_amplify_its_own_errors() -> None:
    """The rule allows about as much as the model errs by itself, and no more; tolerances are used as they are."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).to(torch.bfloat16).eval()
    x = torch.randn(16, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        workload = run_of(model, x)
        expected = Expected(workload, Tolerance(), "cpu")
        right = model.double()(x.double()).to(torch.bfloat16)
        assert expected.failed(right) is None
        wrong = expected.failed(right * 1.1)
        assert wrong is not None
        assert wrong.rule == "reference"
        model.to(torch.bfloat16)
        loose = Expected(workload, Tolerance(kind="explicit", rtol=0.5, atol=0.1), "cpu")
        assert loose.failed(right * 1.1) is None


def test_a_model_that_draws_has_no_expected_answer() -> None:
    """Nobody could tell a wrong kernel from another draw."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    with pytest.raises(ConfigError, match=r"the model draws random numbers") as error:
        Expected(run_of(model, torch.randn(4, 8)), Tolerance(), "cpu")
    assert error.value.remedy == "call model.eval(), or draw what it needs before it runs"
