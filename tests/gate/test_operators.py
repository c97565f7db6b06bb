"""Operators that a library registers: gated against a reference that is named, or against the recorded gold alone."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_cgins import config, record
from pytest_cgins.core.case import OperatorCheck
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import GOLD_ALONE, Reason, Status
from pytest_cgins.gate.cases import is_call_of, operator_checks
from pytest_cgins.gate.evaluate import Evaluator
from tests.forked_python import CGINS, ForkedPython

MODULE = "cgins_gated_lib"
LIBRARY = """\
import torch

@torch.library.custom_op("cgins_gated::scale", mutates_args=("out",))
def scale(out: torch.Tensor, x: torch.Tensor, by: float) -> None:
    out.numpy()[:] = x.numpy() * FACTOR * by

@torch.library.custom_op("cgins_gated::plus", mutates_args=())
def plus(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() + FACTOR)
"""
REFERENCE = """\
import torch

def scale(out, x, by):
    out.copy_(x * by)

def half(out, x, by):
    out.copy_(x * by / 2)

def other(x):
    return x + 1

def plus(x):
    return x + 1
"""
LAUNCHER = """\
// cgins: scale(Tensor(a!) out, Tensor x, float by) -> ()
#include <cgins.h>
extern "C" int scale(DLTensor* out, const DLTensor* x, double by, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(x); ++i) cgins::data<float>(out)[i] = cgins::data<float>(x)[i] * float(by);
  return 0;
}
"""
GATED = "{op: torch.ops.cgins_gated.scale, load: [cgins_gated_lib], device: cpu"
KERNELS = f"""\
  referred: {GATED}, reference: 'reference:scale'}}
  alone: {GATED}}}
  launched: {{op: torch.ops.cgins_gated.scale, source: scale.cpp}}
  wrong: {GATED}, target: 'wrong:scale'}}
  halved: {GATED}, reference: 'reference:half'}}
  unlike: {GATED}, reference: 'reference:other'}}
  sampled: {{op: torch.ops.cgins_gated.plus, load: [cgins_gated_lib], device: cpu}}
  interpreted:
    op: torch.ops.cgins_gated.plus
    reference: reference:plus
    target: torch.ops.cgins_gated_triton.plus
    load: [interpreted_ops]
    device: cpu
    interpret: true
  sampled_wrong: {{op: torch.ops.cgins_gated.plus, target: 'wrong:plus', device: cpu}}
"""
TRITON = """\
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.jit
def _plus(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton_op("cgins_gated_triton::plus", mutates_args=())
def plus(x: torch.Tensor) -> torch.Tensor:
    if not x.is_contiguous():
        raise ValueError("contiguous tensors only")
    y = torch.empty_like(x)
    wrap_triton(_plus)[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
    return y
"""
WRONG = """\
def scale(out, x, by):
    out.numpy()[:] = x.numpy() * by * 1.001

def plus(x):
    return x + 1.01
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a pack of both operators; outputs of the second are larger than what a recipe keeps."""
    folder = tmp_path_factory.mktemp("operators")
    for name, text in {
        f"{MODULE}.py": LIBRARY.replace("FACTOR", "1"), "reference.py": REFERENCE, "scale.cpp": LAUNCHER, "wrong.py": WRONG,
        "interpreted_ops.py": TRITON,
        "cgins.yaml": f"version: 1\ntraces: [traces]\nkernels:\n{KERNELS}",
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module(MODULE)
    finally:
        sys.path.remove(str(folder))
    with record(folder / "traces"), torch.no_grad():
        torch.ops.cgins_gated.scale(torch.zeros(5, 7), torch.randn(5, 7), 3.0)
        torch.ops.cgins_gated.plus(torch.randn(90, 70))
    return folder


@pytest.fixture(scope="module")
def gate(folder: Path) -> Iterator[Callable[[str], Evaluation]]:
    """Evaluates the one case of a kernel."""
    with closing(Evaluator(config.load(folder / "cgins.yaml"), seed=1, timing=False)) as evaluator:

        def evaluate(kernel: str, check: OperatorCheck = "") -> Evaluation:
            (case,) = (one for one in evaluator.cases() if one.kernel == kernel)
            if check:
                assert [one.check for one in operator_checks(evaluator.config, case)] == [check]
            return evaluator.evaluate(replace(case, check=check))

        yield evaluate


@pytest.mark.exam
def test_a_reference_tells_what_is_right(gate: Callable[[str], Evaluation]) -> None:
    """On fresh inputs as on the recorded ones, and the report says which function it is."""
    found = gate("referred")
    assert found.verdict.status is Status.PASSED, found.verdict.message
    assert found.correctness is not None
    assert {check.inputs for check in found.correctness.checks} >= {"recorded", "fresh"}
    assert any("reference.scale is the reference" in note for note in found.correctness.notes)


@pytest.mark.exam
@pytest.mark.parametrize("kernel", ["alone", "launched", "sampled"])
def test_gold_alone(gate: Callable[[str], Evaluation], kernel: str) -> None:
    """Without a reference the recorded inputs and gold decide, nothing else is run, and the report says so."""
    found = gate(kernel)
    assert found.verdict.status is Status.PASSED, found.verdict.message
    assert found.correctness is not None
    assert [(check.rule, check.inputs) for check in found.correctness.checks] == [
        ("form", "recorded"), ("gold", "recorded"),
    ]  # fmt: skip
    assert GOLD_ALONE in found.correctness.notes
    assert all(power.caught for power in found.correctness.power)


@pytest.mark.parametrize("kernel", ["wrong", "sampled_wrong"])
def test_gold_alone_finds_what_is_wrong(gate: Callable[[str], Evaluation], kernel: str) -> None:
    """A thousandth and a hundredth are far beyond what another order of sums makes."""
    found = gate(kernel)
    assert (found.verdict.status, found.verdict.reason) == (Status.INCORRECT, Reason.GOLD_MISMATCH)


@pytest.mark.exam
def test_an_operator_of_triton_in_its_interpreter(gate: Callable[..., Evaluation]) -> None:
    """It is right, and registered right as far as real memory tells: fake tensors the interpreter cannot run."""
    assert gate("interpreted").verdict.status is Status.PASSED
    checked = gate("interpreted", "schema").verdict
    assert (checked.status, checked.message) == (Status.PASSED, "")


def test_a_reference_that_computes_something_else(gate: Callable[[str], Evaluation]) -> None:
    """It is not the kernel's fault: other numbers are drift, other arguments an error that says what to do."""
    halved = gate("halved").verdict
    assert halved.status is Status.TRACE_DRIFT
    assert "reference reference.half on cpu does not give what was recorded" in halved.message
    unlike = gate("unlike").verdict
    assert (unlike.status, unlike.reason) == (Status.INFRASTRUCTURE, Reason.REFERENCE_FAILED)
    assert "reference reference.other does not stand for torch.ops.cgins_gated.scale" in unlike.message
    assert "take the operator's arguments" in unlike.message


@pytest.mark.parametrize(
    ("reference", "what", "remedy"),
    [
        ("reference:scales", 'defines no "scales"', '"scale"'),
        ("references:scale", 'no module "references"', '"reference"'),
    ],
)
def test_a_reference_that_is_not_there(folder: Path, reference: str, what: str, remedy: str) -> None:
    """It is an error of the file, with the line of the kernel and the nearest name."""
    file = folder / f"{reference.replace(':', '_')}.yaml"
    file.write_text(f"version: 1\ntraces: [traces]\nkernels:\n  k: {GATED}, reference: '{reference}'}}\n")
    with (
        closing(Evaluator(config.load(file), seed=1, timing=False)) as evaluator,
        pytest.raises(ConfigError, match=":4: reference") as caught,
    ):
        evaluator.cases()
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("op", "recorded", "is_its"),
    [
        ("torch.ops.a.b", "torch.ops.a.b", True), ("torch.ops.a.b", "torch.ops.a.b.default", True),
        ("torch.ops.a.b", "torch.ops.a.b.out", True), ("torch.ops.a.b.default", "torch.ops.a.b", True),
        ("torch.ops.a.b.out", "torch.ops.a.b", False), ("torch.ops.a.b", "torch.ops.a.bc", False),
        ("torch.relu", "torch.relu.default", False),
    ],
)  # fmt: skip
def test_overloads_by_other_names(op: str, recorded: str, is_its: bool) -> None:
    """A pack of the dispatch level has overloads; a kernel of the operator is gated on all of them."""
    assert is_call_of(recorded, op) is is_its


@pytest.mark.exam
def test_an_audit_runs_the_reference(folder: Path, tmp_path: Path, forked_python: ForkedPython) -> None:
    """`cgins traces audit` knows operators that no library has registered by the functions that stand for them."""
    project = Path(shutil.copytree(folder, tmp_path / "project"))
    scale, plus = (
        f"{{op: torch.ops.cgins_gated.{name}, reference: 'reference:{name}', source: scale.cpp}}"
        for name in ("scale", "plus")
    )
    (project / "cgins.yaml").write_text(
        f"version: 1\ntraces: [traces]\nkernels:\n  a: {scale}\n  b: {plus}\n"
    )
    done = forked_python.run([*CGINS, "traces", "audit", "traces"], cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 traces, 0 weak" in done.stdout


def test_which_checks_an_operator_gets(folder: Path) -> None:
    """Names that `-k` can choose; none for a kernel that is no operator, no graph without a GPU."""
    loaded = config.load(folder / "cgins.yaml")
    with closing(Evaluator(loaded, seed=1, timing=False)) as evaluator:
        cases = {case.kernel: case for case in evaluator.cases()}
    names = [
        check.name.removeprefix(cases["alone"].name) for check in operator_checks(loaded, cases["alone"])
    ]
    assert names == ["/opcheck-schema", "/opcheck-fake", "/opcheck-aot", "/opcheck-compile"]
    assert list(operator_checks(loaded, cases["launched"])) == []
