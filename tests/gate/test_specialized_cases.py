"""Kernels with builds for some sizes, through real workers: which build the gate checks on which inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins.building.torch_library import package
from pytest_cgins.config import load
from pytest_cgins.core.errors import ConfigError, ContractError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run.pool import WorkerPool

# In the general build GENERAL is what is computed, in that for 40 columns SPECIAL.
KERNEL = """\
// cgins: relu(Tensor input) -> Tensor
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
#ifdef COLS
  const int64_t rows = cgins::numel(input) / COLS;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = row * COLS; i < (row + 1) * COLS; ++i) cgins::data<float>(out)[i] = SPECIAL;
#else
  for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<float>(out)[i] = GENERAL;
#endif
  return 0;
}
"""
RIGHT = "x[i] < 0 ? 0 : x[i]"
WRONG = "x[i]"
SPECIALIZE = "specialize: {macros: {COLS: input.size(-1)}, builds: [{COLS: 40}]}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pack of one relu call of 40 columns."""
    folder = tmp_path_factory.mktemp("specialized")
    with pytest_cgins.record(folder / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(6, 40))
    return folder


def configure(folder: Path, specialize: str = SPECIALIZE) -> Path:
    file = folder / "cgins.yaml"
    file.write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n  relu:\n    op: torch.nn.functional.relu\n"
        f"    implementations:\n      - {{name: one, source: relu.cpp, {specialize}}}\n",
        encoding="utf-8",
    )
    return file


@pytest.fixture
def evaluate(project: Path, reference: WorkerPool) -> Iterator[Callable[..., Evaluation]]:
    """Function that evaluates the case of a kernel with these two computations."""
    made: list[Evaluator] = []

    def run(*, general: str, special: str) -> Evaluation:
        text = KERNEL.replace("GENERAL", general).replace("SPECIAL", special)
        (project / "relu.cpp").write_text(text, encoding="utf-8")
        evaluator = Evaluator(load(configure(project)), seed=3, timing=False, reference=reference)
        made.append(evaluator)
        (case,) = evaluator.cases()
        return evaluator.evaluate(case)

    yield run
    for evaluator in made:
        evaluator.close()


@pytest.mark.exam
def test_a_kernel_that_is_right_in_all_builds_passes(evaluate: Callable[..., Evaluation]) -> None:
    """Recorded, fresh and probing inputs are answered rightly, whichever build they get."""
    assert evaluate(general=RIGHT, special=RIGHT).verdict.status is Status.PASSED


@pytest.mark.exam
def test_recorded_sizes_are_checked_on_their_own_build(evaluate: Callable[..., Evaluation]) -> None:
    """A build for the recorded size that is wrong fails the case, though the general one is right."""
    assert evaluate(general=RIGHT, special=WRONG).verdict.status is Status.INCORRECT


@pytest.mark.exam
def test_other_sizes_are_checked_on_the_general_build(evaluate: Callable[..., Evaluation]) -> None:
    """A general build that is wrong is found by inputs of other sizes, though the recorded size has its own build."""
    found = evaluate(general=WRONG, special=RIGHT).verdict
    assert (found.status, found.reason) == (Status.INCORRECT, Reason.SIZE_DEPENDENT)


@pytest.mark.exam
def test_a_build_that_looks_at_more_than_its_macros_is_found(evaluate: Callable[..., Evaluation]) -> None:
    """A build that takes the recorded number of rows for granted is wrong for another one: sizes differ there, too."""
    found = evaluate(general=RIGHT, special="i < 240 && !(x[i] < 0) ? x[i] : i < 240 ? 0 : 7").verdict
    assert (found.status, found.reason) == (Status.INCORRECT, Reason.SIZE_DEPENDENT)


def test_a_build_that_no_recorded_call_takes_is_refused(project: Path) -> None:
    """A build that nothing would check is an error, with the line of the implementation."""
    (project / "relu.cpp").write_text(KERNEL, encoding="utf-8")
    file = configure(
        project, "specialize: {macros: {COLS: input.size(-1)}, builds: [{COLS: 40}, {COLS: 41}]}"
    )
    with pytest.raises(
        ConfigError, match=r"cgins\.yaml:7: specialize of relu/one has a build for COLS 41, which no"
    ):
        cases_of(load(file))
    assert len(cases_of(load(configure(project)))) == 1


def test_export_refuses_several_builds(project: Path, tmp_path: Path) -> None:
    """A package that is built elsewhere has one build of its sources, so that several are refused."""
    (project / "relu.cpp").write_text(
        KERNEL.replace("GENERAL", RIGHT).replace("SPECIAL", RIGHT), encoding="utf-8"
    )
    config = load(configure(project))
    with pytest.raises(ContractError, match="relu/one cannot be exported: a package has one build"):
        package.write(config, config.kernels, folder=tmp_path / "out", namespace="mine")
