"""What an evaluation stands for, and when it no longer does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins.building import build
from pytest_cgins.building.contracts import source
from pytest_cgins.config import load
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.gate import input_digests
from pytest_cgins.gate.cases import cases_of

KERNEL = """\
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>
#include "half.h"
extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const float x = cgins::data<float>(input)[i];
    cgins::data<float>(out)[i] = x > ZERO ? x : ZERO;
  }
  return 0;
}
"""
TEXT = """\
version: 1
traces: [traces]
kernels:
  relu: {op: torch.nn.functional.relu, source: relu.cpp}
"""


@pytest.fixture
def project(tmp_path: Path, make_evaluation: Callable[..., Evaluation]) -> tuple[Path, Evaluation]:
    """A `cgins.yaml`, and an evaluation of its kernel."""
    with pytest_cgins.record(tmp_path / "traces", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.ones(2, 3))
    (tmp_path / "relu.cpp").write_text(KERNEL)
    (tmp_path / "half.h").write_text("#define ZERO 0.0f\n")
    file = tmp_path / "cgins.yaml"
    file.write_text(TEXT)
    config = load(file)
    kernel = config.kernels[0]
    compiled = build.build(source.find(config, kernel, kernel.implementations[0]))
    (case,) = cases_of(config)
    tested = input_digests.tested(config, case, compiled, seed=7)
    return file, replace(make_evaluation(), case=case, tested=tested)


def edit(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("relu.cpp", "x > ZERO", "x >= ZERO", "kernel relu/cpp (cpu): its sources changed (relu.cpp)"),
        ("half.h", "0.0f", "0.1f", "kernel relu/cpp (cpu): what it includes changed (half.h)"),
        (
            "cgins.yaml",
            "source: relu.cpp",
            "source: relu.cpp, tolerance: {atol: 1}",
            "kernel relu/cpp (cpu): its entry in cgins.yaml changed",
        ),
        (
            "cgins.yaml",
            "kernels:",
            "gate: {tolerate: 4%}\nkernels:",
            "kernel relu/cpp (cpu): its entry in cgins.yaml changed",
        ),
        ("cgins.yaml", "  relu:", "  other:", "kernel relu/cpp (cpu): it is no longer in cgins.yaml"),
        ("traces/manifest.json", "\n", " \n", "trace pack traces: its manifest.json changed"),
    ],
)
def test_what_changed_is_named(
    project: tuple[Path, Evaluation], name: str, old: str, new: str, said: str
) -> None:
    """Of whatever an evaluation rests on, a change after it is told; before it, nothing is."""
    file, evaluation = project
    assert input_digests.stale(file, [evaluation]) == ()
    edit(file.parent / name, old, new)
    assert input_digests.stale(file, [evaluation]) == (said,)


def test_what_is_gone_is_named(project: tuple[Path, Evaluation]) -> None:
    """A source or a whole file that is no longer there is a change."""
    file, evaluation = project
    (file.parent / "relu.cpp").unlink()
    (said,) = input_digests.stale(file, [evaluation])
    assert said.startswith("kernel relu/cpp (cpu): its sources can no longer be read: ")
    assert "no such file: relu.cpp" in said


def test_comments_and_lines_of_the_file_change_nothing(project: tuple[Path, Evaluation]) -> None:
    """A kernel that moved down in cgins.yaml is the same; one that was not built is not looked at."""
    file, evaluation = project
    edit(file, "kernels:", "# a comment\nkernels:")
    assert input_digests.stale(file, [evaluation]) == ()
    edit(file.parent / "relu.cpp", "x > ZERO", "x >= ZERO")
    assert input_digests.stale(file, [replace(evaluation, tested=None)]) == ()
