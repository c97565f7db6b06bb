from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.config import load

IN_PLACE = """import torch
atol = 1e-4
rtol = 1e-3

def reference(*, A, B, C, M, N, K, **kwargs):
    C[:] = (A.reshape(M, K) @ B.reshape(K, N)).reshape(-1)
"""
SOLVE = """// extern "C" void solve(int commented_out)
extern "C" void solve(const float* A, const float* __restrict__ B, /* out */ float *C, int M, int N, int K) {
}
"""


def test_arguments_of_a_kernel(cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path) -> None:
    """Pointers of `solve` are flat buffers, written ones are outputs, and the tolerance goes to cgins.yaml."""
    kernel = write("gemm.cu", SOLVE)
    dims = '{"M": 4, "N": 4, "K": 4}'
    options = ("--dims", dims, "--kernel", kernel, "--allow-code", "--config", "cgins.yaml")
    run = cgins("import", "refpy", write("gemm.py", IN_PLACE), *options)
    assert run.code == 0, run.out
    (trace,) = run.pack.traces
    assert trace.call.op == "references.ref_gemm.reference"
    assert [meta.shape for meta in trace.tensors] == [(16,)] * 3
    assert len(trace.gold.mutated) == 1
    tolerance = load(tmp_path / "cgins.yaml").kernels[0].tolerance
    assert (tolerance.rtol, tolerance.atol) == (1e-3, 1e-4)
    run = cgins("import", "refpy", tmp_path / "gemm.py", *options[:-2], "--numel", 7)
    assert "left out  gemm" in run.out


@pytest.mark.parametrize(
    "maker",
    [
        "def make_inputs(M, N):\n    return {'x': torch.rand(M, N), 'scale': 2.0}\n",
        "def make_inputs(**dims):\n    return [torch.rand(dims['M'], dims['N']), 2.0]\n",
        "def setup(M, N):\n    x = torch.rand(M, N)\n    return {'inputs': {'x': x, 'scale': 2.0}, 'outputs': []}\n",
    ],
)
def test_arguments_that_the_file_makes(
    cgins: Callable[..., Any], write: Callable[..., Path], maker: str
) -> None:
    """A function of the dims gives the arguments, by name or in order."""
    code = f"import torch\n{maker}\ndef reference(x, scale):\n    return x * scale\n"
    run = cgins("import", "refpy", write("ref.py", code), "--dims", '{"M": 3, "N": 5}', "--allow-code")
    assert run.code == 0, run.out
    assert run.pack.traces[0].tensors[0].shape == (3, 5)


def test_arguments_by_annotation(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A parameter annotated with dtype and sizes is a tensor of these; one named like a dim has its size."""
    code = (
        'def reference(x: "float16[M, 4]", i: "int64[M]", flag: "bool[2]", M: int, other=1):\n'
        "    return x[i.clamp(0, M - 1)]\n"
    )
    run = cgins("import", "refpy", write("rows.py", code), "--dims", '{"M": 6}', "--allow-code")
    (trace,) = run.pack.traces
    assert [(meta.dtype, meta.shape) for meta in trace.tensors] == [
        ("float16", (6, 4)),
        ("int64", (6,)),
        ("bool", (2,)),
    ]


@pytest.mark.parametrize(
    ("code", "dims", "reason"),
    [
        ("def reference(x):\n    return x\n", '{"M": 1}', "nothing says what its tensors are"),
        ("def ref(x):\n    return x\n", '{"M": 1}', "it defines no reference"),
        ('def reference(x: "f99[M]"):\n    return x\n', '{"M": 1}', "f99 is not a dtype"),
        ('def reference(x: "float32[N]"):\n    return x\n', '{"M": 1}', "--dims has no N"),
        ("def reference(:\n", '{"M": 1}', "is not Python"),
    ],
)
def test_what_is_missing(
    cgins: Callable[..., Any], write: Callable[..., Path], code: str, dims: str, reason: str
) -> None:
    """What a file lacks is said, and nothing is written."""
    run = cgins("import", "refpy", write("ref.py", code), "--dims", dims, "--allow-code")
    assert run.code == 1
    assert reason in run.out


def test_dims_and_permission(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """Dims must be an object of integers, and the file is not run without --allow-code."""
    source = write("ref.py", "raise SystemExit(9)")
    assert "--allow-code" in cgins("import", "refpy", source, "--dims", "{}").err
    run = cgins("import", "refpy", source, "--dims", '{"M": "x"}', "--allow-code")
    assert "is not an object of integers" in run.err


@pytest.mark.parametrize("value", ["'tight'", "float('nan')", "-1.0"])
def test_tolerances_that_are_none(cgins: Callable[..., Any], write: Callable[..., Path], value: str) -> None:
    """A tolerance of the file that cgins.yaml could not hold leaves the reference out."""
    code = f"import torch\natol = {value}\ndef reference(A: 'float32[M]'):\n    return torch.relu(A)\n"
    run = cgins("import", "refpy", write("ref.py", code), "--dims", '{"M": 4}', "--allow-code")
    assert run.code == 1
    assert "rtol is None and atol" in run.out
