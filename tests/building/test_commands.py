"""`cgins build` and `cgins schema` as a user runs them."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from pytest_cgins.app.commands import build, schema
from pytest_cgins.core.errors import ConfigError, RevisionError
from tests.repository import commit

Cgins = Callable[..., int]


@pytest.fixture
def cgins(project: Any, scale_text: str, monkeypatch: pytest.MonkeyPatch) -> Cgins:
    """Runs a command line in a project with a good kernel, a broken one and a Python one."""
    monkeypatch.chdir(project.root)
    project.write("good.cpp", scale_text)
    project.write("broken.cpp", "// cgins: f(Tensor x) -> Tensor\nint f( { }\n")
    project.write("cgins_test_py.py", "def f(input): ...\n")
    project.write(
        "cgins.yaml",
        "version: 1\ntraces: [none]\nkernels:\n  good: {op: torch.mul, source: good.cpp}\n"
        "  broken: {op: torch.mul, source: broken.cpp}\n"
        "  python: {op: torch.mul, device: cuda, target: cgins_test_py:f}\n",
    )
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    build.add_parsers(subparsers)
    schema.add_parsers(subparsers)

    def run(*words: str) -> int:
        arguments = parser.parse_args(words)
        status: int = arguments.run(arguments)
        return status

    return run


def test_build_all(cgins: Cgins, capsys: pytest.CaptureFixture[str]) -> None:
    """All kernels are built, one line each; a failure is told on stderr and by the exit status."""
    assert cgins("build") == 1
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines] == ["good/cpp", "broken/cpp", "python/python"]
    assert lines[1][2] == "FAILED"
    assert lines[2][2:] == ["-", "nothing", "to", "compile"]
    assert "broken/cpp: g++ refused broken.cpp: " in err


def test_build_selection(cgins: Cgins, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels can be named, or chosen by device."""
    assert cgins("build", "good") == 0
    assert cgins("build", "--device", "cuda") == 0
    out = capsys.readouterr().out
    assert "good/cpp" in out
    assert "broken" not in out


def test_unknown_kernel(cgins: Cgins) -> None:
    """A name that is not in cgins.yaml is refused with the nearest one."""
    with pytest.raises(ConfigError) as caught:
        cgins("build", "god")
    assert caught.value.remedy == 'did you mean "good"?'


def test_schema(cgins: Cgins, capsys: pytest.CaptureFixture[str]) -> None:
    """The prototype of a kernel, or of a source file, is printed ready to paste."""
    assert cgins("schema", "good") == 0
    assert cgins("schema", "good.cpp") == 0
    first, second = capsys.readouterr().out.split("// ")[1:]
    expected = (
        'extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream stream);\n'
    )
    assert first.endswith(expected)
    assert second == f"good.cpp:1: scale(Tensor input, float other) -> Tensor\n{expected}"


def test_schema_of_a_python_kernel(cgins: Cgins) -> None:
    """Only launchers have a prototype."""
    with pytest.raises(ConfigError, match='kernel "python" has no launcher'):
        cgins("schema", "python")


# ---- architectures

COPY = """\
// cgins: copy(Tensor x) -> Tensor
#include <cgins.h>
__global__ void copy_values(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" int copy(const DLTensor* x, DLTensor* out, cgins_stream stream) {
  copy_values<<<1, 32, 0, stream>>>(cgins::data<float>(x), cgins::data<float>(out));
  CGINS_LAUNCH_CHECK();
  return 0;
}
"""
needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")


@pytest.fixture
def with_cuda(cgins: Cgins, project: Any) -> Cgins:
    """The same with a CUDA kernel for one chip."""
    project.write("copy.cu", COPY)
    file = project.root / "cgins.yaml"
    file.write_text(file.read_text() + "  copy: {op: torch.clone, source: copy.cu, archs: [sm_90a]}\n")
    return cgins


@pytest.mark.exam
@needs_nvcc
def test_build_for_architectures(with_cuda: Cgins, capsys: pytest.CaptureFixture[str]) -> None:
    """--arch builds CUDA kernels only, a line each, and the table has the document's numbers."""
    assert with_cuda("build", "--arch", "sm_80,sm_90") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["python", "python", "sm_80", "SKIPPED"],
        ["python", "python", "sm_90", "SKIPPED"],
        ["copy", "cuda", "sm_80", "SKIPPED"],
        ["copy", "cuda", "sm_90a", "NEW"],
    ]
    assert with_cuda("build", "copy", "--arch", "sm_90", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["compilations"]
    numbers = one["verdict"]["numbers"]
    names = ("registers", "spill_nbytes", "stack_nbytes")
    cells = [f"{numbers[f'{name}_per_thread']:.0f}" for name in names]
    assert lines[4].split()[4:8] == [*cells, f"{numbers['static_shared_nbytes_per_block']:.0f}"]
    (function,) = one["resources"]
    assert function["arch"] == one["arch"] == "sm_90a"
    assert with_cuda("build", "copy", "--arch", "sm_90a", "--resources") == 0
    listed = capsys.readouterr().out
    assert re.search(r"^copy/cuda/sm_90a +\d+ +0 +0 +0 +\w+ \d+, .* copy_values\(", listed, re.MULTILINE)
    assert listed.endswith("nothing had to be built\n")


@pytest.mark.exam
@needs_nvcc
def test_build_all_for_architectures(with_cuda: Cgins, capsys: pytest.CaptureFixture[str]) -> None:
    """--all builds what has no architecture too, and a failure of either fails the command."""
    assert with_cuda("build", "copy", "good", "--arch", "sm_90a", "--all") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("copy ")
    assert lines[-1].startswith("good/cpp (cpu) ")
    assert with_cuda("build", "copy", "broken", "--arch", "sm_90a", "--all") == 1


@needs_nvcc
def test_build_against_a_commit(with_cuda: Cgins, project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """--baseline compares; an unknown commit is refused."""
    commit(project.root)
    assert with_cuda("build", "copy", "--arch", "sm_90a", "--baseline", "merge-base") == 0
    assert " PASSED " in capsys.readouterr().out
    with pytest.raises(RevisionError, match='git knows no commit "v1"'):
        with_cuda("build", "copy", "--arch", "sm_90a", "--baseline", "v1")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--timeout", "0"], "'0' is not a number above 0"),
        (["--timeout", "nan"], "'nan' is not a number above 0"),
        (["--timeout", "soon"], "'soon' is not a number above 0"),
        (["-j", "0"], "'0' is not a number from 1 on"),
        (["-j", "-1"], "'-1' is not a number from 1 on"),
    ],
)
def test_wrong_numbers(cgins: Cgins, capsys: pytest.CaptureFixture[str], words: list[str], what: str) -> None:
    """Limits and numbers of jobs are checked before anything is built."""
    with pytest.raises(SystemExit):
        cgins("build", *words)
    assert what in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--json"], ["--resources"], ["--baseline", "main"]])
def test_what_goes_with_architectures(cgins: Cgins, words: list[str]) -> None:
    """Options that would be without effect are refused."""
    with pytest.raises(ConfigError, match=f"{words[0]} goes with --arch"):
        cgins("build", *words)


def test_an_empty_list_of_architectures(cgins: Cgins) -> None:
    """A variable that is not set builds nothing for this machine instead, and passes nothing."""
    with pytest.raises(ConfigError, match='--arch "," names no architecture'):
        cgins("build", "--arch", ",", "--baseline", "main")
