"""`cgins build` and `cgins schema` as a user runs them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from pytest_cgins.errors import ConfigError
from pytest_cgins.kernels.commands import add_parsers


@pytest.fixture
def cgins(project: Any, scale_text: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
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
    add_parsers(parser.add_subparsers())

    def run(*words: str) -> int:
        arguments = parser.parse_args(words)
        status: int = arguments.run(arguments)
        return status

    return run


def test_build_all(cgins: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """All kernels are built, one line each; a failure is told on stderr and by the exit status."""
    assert cgins("build") == 1
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines] == ["good/cpp", "broken/cpp", "python/python"]
    assert lines[1][2] == "FAILED"
    assert lines[2][2:] == ["-", "nothing", "to", "compile"]
    assert "broken/cpp: g++ refused broken.cpp: " in err


def test_build_selection(cgins: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels can be named, or chosen by device."""
    assert cgins("build", "good") == 0
    assert cgins("build", "--device", "cuda") == 0
    out = capsys.readouterr().out
    assert "good/cpp" in out
    assert "broken" not in out


def test_unknown_kernel(cgins: Callable[..., int]) -> None:
    """A name that is not in cgins.yaml is refused with the nearest one."""
    with pytest.raises(ConfigError) as caught:
        cgins("build", "god")
    assert caught.value.remedy == 'did you mean "good"?'


def test_schema(cgins: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """The prototype of a kernel, or of a source file, is printed ready to paste."""
    assert cgins("schema", "good") == 0
    assert cgins("schema", "good.cpp") == 0
    first, second = capsys.readouterr().out.split("// ")[1:]
    expected = (
        'extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream stream);\n'
    )
    assert first.endswith(expected)
    assert second == f"good.cpp:1: scale(Tensor input, float other) -> Tensor\n{expected}"


def test_schema_of_a_python_kernel(cgins: Callable[..., int]) -> None:
    """Only launchers have a prototype."""
    with pytest.raises(ConfigError, match='kernel "python" has no launcher'):
        cgins("schema", "python")
