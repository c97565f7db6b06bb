"""Ways to pass that are a session's and no kernel's: gold recorded too late, stale builds, dropped tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from torch.nn import functional

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate import input_digests
from pytest_cgins.gate.baseline import held_against
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run.pool import WorkerPool

RELU = """// cgins: relu(Tensor input) -> Tensor
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const float x = cgins::data<float>(input)[i];
    cgins::data<float>(out)[i] = EXPRESSION;
  }
  return 0;
}
"""
RIGHT = RELU.replace("EXPRESSION", "x < 0 ? 0 : x")
TRIPLED = RELU.replace("EXPRESSION", "x < 0 ? 0 : 3 * x")
IN_PLACE = """// cgins: relu_(Tensor(a!) input) -> Tensor(a!)
extern "C" int relu_(DLTensor*, cgins_stream) { return 0; }
"""


def _project(folder: Path, sources: dict[str, tuple[str, str]], run: Callable[[], object]) -> config.Config:
    """Kernels by name, each with its op and text, and the calls that `run` makes."""
    with pytest_cgins.record(folder / "traces", ops=sorted({op for op, _ in sources.values()})):
        run()
    kernels = {}
    for name, (op, text) in sources.items():
        (folder / f"{name}.cpp").write_text(text)
        kernels[name] = {"op": op, "source": f"{name}.cpp"}
    document = {"version": 1, "traces": ["traces"], "kernels": kernels}
    (folder / "cgins.yaml").write_text(yaml.safe_dump(document))
    return config.load(folder / "cgins.yaml")


def _evaluated(loaded: config.Config, cache: Path, reference: WorkerPool) -> dict[str, Evaluation]:
    evaluator = Evaluator(loaded, seed=20, timing=False, cache=cache, reference=reference)
    try:
        return {case.kernel: evaluator.evaluate(case) for case in evaluator.cases()}
    finally:
        evaluator.close()


@pytest.mark.exam
def test_gold_is_what_the_op_gave_and_not_what_became_of_it(tmp_path: Path, reference: WorkerPool) -> None:
    """A model that overwrites the op's output and input in place does not change what is recorded of the call."""

    def model() -> None:
        x = torch.randn(5, 77)
        functional.relu(x).mul_(3)
        x.zero_()
        functional.relu_(torch.randn(5, 77)).mul_(3)

    names = {
        "right": ("torch.nn.functional.relu", RIGHT),
        "tripled": ("torch.nn.functional.relu", TRIPLED),
        "nothing": ("torch.nn.functional.relu_", IN_PLACE),
    }
    done = _evaluated(_project(tmp_path, names, model), tmp_path / "cache", reference)
    assert done["right"].verdict.status is Status.PASSED
    # Were the gold kept by reference, this one would be right; were the input, doing nothing would be.
    assert done["tripled"].verdict.reason is Reason.GOLD_MISMATCH
    assert done["nothing"].verdict.reason is Reason.GOLD_MISMATCH


@pytest.mark.exam
def test_an_earlier_build_does_not_pass_for_the_source(tmp_path: Path, reference: WorkerPool) -> None:
    """A source that became wrong is built anew, and a library that was put in its place is not loaded."""
    cache = tmp_path / "cache"
    loaded = _project(
        tmp_path,
        {"relu": ("torch.nn.functional.relu", RIGHT)},
        lambda: functional.relu(torch.randn(5, 77)),
    )
    first = _evaluated(loaded, cache, reference)["relu"]
    assert first.verdict.status is Status.PASSED
    (right,) = cache.rglob("*.so")
    kept = shutil.copy(right, tmp_path / "right.so")
    (tmp_path / "relu.cpp").write_text(TRIPLED)
    assert input_digests.stale(tmp_path / "cgins.yaml", [first]) == (
        "kernel relu/cpp (cpu): its sources changed (relu.cpp)",
    )
    assert _evaluated(loaded, cache, reference)["relu"].verdict.reason is Reason.GOLD_MISMATCH
    (wrong,) = set(cache.rglob("*.so")) - {right}
    wrong.chmod(0o644)
    wrong.write_bytes(Path(kept).read_bytes())
    assert _evaluated(loaded, cache, reference)["relu"].verdict.reason is Reason.GOLD_MISMATCH


def test_a_dropped_case_is_missed(tmp_path: Path) -> None:
    """A session with fewer cases than its base revision has says which, though all that it ran passed."""
    folder = tmp_path / "project"
    folder.mkdir()
    wrong_too = {
        "right": ("torch.nn.functional.relu", RIGHT),
        "tripled": ("torch.nn.functional.relu", TRIPLED),
    }
    _project(folder, wrong_too, lambda: functional.relu(torch.randn(5, 77)))
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "all cases")
    file = folder / "cgins.yaml"
    document = yaml.safe_load(file.read_text())
    del document["kernels"]["tripled"]
    file.write_text(yaml.safe_dump(document))
    missing = held_against("HEAD", [file]).missing
    assert [name.partition("/")[0] for _, name in missing] == ["tripled"]


def _git(folder: Path, *arguments: str) -> None:
    try:
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
