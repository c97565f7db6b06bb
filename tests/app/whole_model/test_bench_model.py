"""`cgins bench-model`: a whole model with kernels in it, on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_cgins.app.whole_model import workload
from pytest_cgins.app.whole_model.bench import Arms, changes_with, difference, other_work, untold
from pytest_cgins.app.whole_model.document import ModelBenches
from pytest_cgins.core import documents
from pytest_cgins.core.bitwise import equal
from tests.forked_python import CGINS, ForkedPython

RELU = """
// cgins: relu(Tensor input) -> Tensor
#include <cgins.h>
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim == 2, "only matrices");
  CGINS_CHECK(cgins::is_contiguous(input), "input is not contiguous");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
"""
SCALE = """
// cgins: scaled_(Tensor(a!) x, float by) -> Tensor(a!)
#include <cgins.h>
extern "C" int scaled_(DLTensor* x, double by, cgins_stream) {
  float* values = cgins::data<float>(x);
  for (int64_t i = 0; i < cgins::numel(x); ++i) values[i] *= float(by);
  return 0;
}
"""
MODELS = """
import torch
import pytest_cgins


@pytest_cgins.mark
def scaled_(x, by):
    return x.mul_(by)


def slow(x):
    for _ in range(4000):
        x = torch.sin(x)
    return torch.sin(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 64)

    def forward(self, x):
        x = torch.nn.functional.relu(self.first(x))
        x = scaled_(x, 0.5)
        return torch.nn.functional.relu(x.t()).sum(1), torch.nn.functional.relu(x[0]), slow(x)


def make():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(8, 64)


def closure(device):
    x = torch.randn(4, 4, device=device)
    return lambda: torch.nn.functional.relu(x)


def nothing():
    return 7
"""
CONFIG = """
version: 1
kernels:
  relu: {op: torch.nn.functional.relu, device: cpu, source: kernels/relu.cpp}
  scale: {op: models.scaled_, device: cpu, source: kernels/scale.cpp}
  sigmoid: {op: torch.sigmoid, device: cpu, source: kernels/sigmoid.cpp}
  broken: {op: torch.tanh, device: cpu, source: kernels/broken.cpp}
  slow: {op: models.slow, device: cpu, target: "quick:quick", contract: python}
"""


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and kernels for some of its ops."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "kernels").mkdir()
    (folder / "kernels/relu.cpp").write_text(RELU)
    (folder / "kernels/scale.cpp").write_text(SCALE)
    (folder / "kernels/sigmoid.cpp").write_text(RELU.replace("relu", "sigmoid"))
    (folder / "kernels/broken.cpp").write_text(f"#error no\n{RELU.replace('relu', 'broken')}")
    (folder / "models.py").write_text(MODELS)
    (folder / "quick.py").write_text("def quick(x):\n    return x.sin()\n")
    (folder / "cgins.yaml").write_text(CONFIG)
    return folder


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *CGINS, "bench-model", *words, "--device", "cpu"],
        cwd=folder, env={**os.environ, "COLUMNS": "240", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def forked(project: Path, forked_torch: ForkedPython) -> Command:
    """As `command`, for what times nothing."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return forked_torch.run([*CGINS, "bench-model", *words, "--device", "cpu"], cwd=project)

    return run


@pytest.mark.exam
def test_kernels_are_swapped_in_and_the_model_is_timed(project: Path) -> None:
    """Calls go to kernels, in place and by value; what a kernel refuses is torch's, with the reason; times say who is faster."""
    done = command(project, "models:make", "--cgins-seed", "7")
    assert done.returncode == 1, done.stderr
    (made,) = documents.load(ModelBenches, (project / ".cgins/model_bench.json").read_bytes()).models
    assert made.measurement is not None
    rows = {one.kernel: one for one in made.kernels}
    assert {name: one.calls for name, one in rows.items()} == {
        "relu/cpp": 1, "scale/cpp": 1, "sigmoid/cpp": 0, "slow/python": 1,
    }  # fmt: skip
    assert sum(rows["relu/cpp"].left.values()) == 2
    assert sorted(why.rpartition(": ")[2] for why in rows["relu/cpp"].left) == [
        "input is not contiguous", "only matrices",
    ]  # fmt: skip
    assert made.measurement.comparisons[0].outcome == "faster"
    (ratio,) = made.ratios
    assert 1 < ratio.low <= ratio.ratio <= ratio.high
    assert rows["slow/python"].torch_ns_per_run > 10 * rows["slow/python"].kernel_ns_per_run > 0
    assert made.difference is not None
    assert made.difference.elements == 64 + 64 + 8 * 64
    assert made.difference.finite
    assert made.difference.relative_rms > 0.01, "the quick kernel is another function"
    assert "proven faster" in done.stdout
    assert "WRONG: output 2 differs from the fp64 reference" in done.stdout
    left_out, culprit = made.notes
    assert left_out.startswith("broken/cpp is left out: ")
    assert culprit == "wrong with the kernel of models.slow alone"
    assert all(note in done.stdout for note in made.notes)
    assert "the model does not call it" in done.stdout


def test_right_kernels_change_nothing(project: Path, forked: Command) -> None:
    """The kernels that are named are put in alone, and outputs are those of the model."""
    done = forked("models:make", "--kernel", "relu", "--kernel", "scale/cpp", "--out", "one.json")
    assert done.returncode == 0, done.stderr
    (made,) = documents.load(ModelBenches, (project / "one.json").read_bytes()).models
    assert all(check.passed for check in made.checks)
    assert [one.kernel for one in made.kernels] == ["relu/cpp", "scale/cpp"]
    assert made.difference is not None
    assert made.difference.relative_rms == 0


@pytest.mark.exam
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("models:mak",), "models has no function mak"),
        (("models",), 'has no model "models"\n→ write MODULE:FUNCTION, such as models.bert:make'),
        (
            (),
            "has no models for cpu that can run here\n→ name MODULE:FUNCTION, or add models: {NAME: {make: MODULE:FUNCTION}} to it",
        ),
        (("models:nothing",), "models:nothing returned int"),
        (("nowhere:make",), "importing nowhere raised ModuleNotFoundError"),
        (("models:closure", "--kernel", "scale"), "no call of the model goes to a kernel"),
        (("models:make", "--kernel", "gelu"), "gelu"),
        (("models:make", "--kernel", "broken"), "refused kernels/broken.cpp"),
    ],
)
def test_what_cannot_be_run_is_told(forked: Command, words: tuple[str, ...], told: str) -> None:
    """Each mistake has its message, and costs no traceback."""
    done = forked(*words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_differences() -> None:
    """They are relative to the size of the whole output; what is not finite there alone is told; forms must agree."""
    one = (torch.tensor([3.0, 4.0]), torch.tensor([float("inf")]))
    found = difference(one, (torch.tensor([3.0, 4.5]), torch.tensor([float("inf")])))
    assert found is not None
    assert (found.relative_rms, found.worst, found.elements, found.finite) == (0.1, 0.5, 3, True)
    found = difference(one, (torch.tensor([3.0, float("nan")]), torch.tensor([0.0])))
    assert found is not None
    assert not found.finite
    assert difference(one, one[0]) is None
    assert difference(one, (one[0][:1], one[1])) is None
    assert difference(object(), object()) is None


def test_the_first_of_eleven_runs_is_discarded() -> None:
    """The plain protocol: the mean of ten runs; what the first one takes longer is in no time."""
    runs: list[float] = []

    def run() -> None:
        runs.append(0.5 if not runs else 0.005)
        time.sleep(runs[-1])

    mean_s = 1e-9 * Arms(workload.Workload(run), {}, [], "cpu").mean_of_ten_ns("torch")
    assert len(runs) == 11
    assert 0.0045 < mean_s < 0.05


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_a_replay_must_follow_the_numbers(stale: bool, dtype: torch.dtype) -> None:
    """What a kernel did as the graph was captured does not come again: with other numbers its answer is an old one."""
    weight, x = torch.randn(8, 8).to(dtype), torch.randn(4, 8)
    before = (weight.clone(), x.clone())
    hidden = x @ weight.float()

    def run() -> torch.Tensor:
        return torch.relu(x @ weight.float()) + x

    def replay() -> torch.Tensor:
        return torch.relu(hidden if stale else x @ weight.float()) + x

    assert changes_with((weight, x), run, replay) is not stale
    assert equal(weight, before[0])
    assert torch.equal(x, before[1])
    assert not changes_with((weight, x), run, lambda: None)


def test_a_model_is_not_told_that_it_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries do other work where a graph is captured, and ask by either name; afterwards torch answers again."""
    for place in (torch.cuda, torch.cuda.graphs):
        monkeypatch.setattr(place, "is_current_stream_capturing", lambda: True)
    with untold():
        assert not torch.cuda.is_current_stream_capturing()
        assert not torch.cuda.graphs.is_current_stream_capturing()
    assert torch.cuda.is_current_stream_capturing()
    assert torch.cuda.graphs.is_current_stream_capturing()


def test_other_work_is_named() -> None:
    """By operators and their number, the most frequent ones."""
    run = {"aten.mm.default": 24, "aten.add.Tensor": 3, "aten.exp.default": 1}
    assert not other_work(run, dict(run))
    told = other_work(run, {**run, "aten.mm.default": 20, "aten.where.self": 24})
    assert told == "24 × aten.where.self more, 4 × aten.mm.default fewer"
    told = other_work({}, {f"aten.{name}": number for number, name in enumerate("abcde", 1)})
    assert told == "5 × aten.e more, 4 × aten.d more, 3 × aten.c more, and 2 others"


def test_what_a_model_s_answer_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, buffers and inputs that are numbers with a point; of a function nobody knows."""
    (tmp_path / "made_models.py").write_text(
        "import torch\n"
        "def whole():\n"
        "    return torch.nn.BatchNorm1d(3).eval(), {'input': torch.ones(2, 3)}\n"
        "def closed():\n"
        "    return lambda: 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = workload.made("made_models:whole", "cpu")
    assert whole.tensors is not None
    assert sorted(tuple(one.shape) for one in whole.tensors) == [(2, 3), (3,), (3,), (3,), (3,)]
    assert isinstance(whole.run(), torch.Tensor)
    assert workload.made("made_models:closed", "cpu").tensors is None
