"""Torch extensions on shadow headers: the same text gives what it gives on torch's own."""

from __future__ import annotations

import argparse
import gc
import re
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.errors import BuildError, ConfigError
from pytest_cgins.kernels import build as builds
from pytest_cgins.kernels import shadow, shadow_operators, toolchain, torch_extension
from pytest_cgins.kernels.callable import load
from pytest_cgins.model import KernelSource
from pytest_cgins.session import build_command
from tests.kernels.shadow_corpus import calls

CORPUS = Path(__file__).parent / "shadow_corpus"
KERNEL = "{op: torch.nn.functional.softmax, contract: torch-extension, source: k.cpp, entry: softmax}"


def _source(file: Path, entry: str, **options: Any) -> KernelSource:
    return KernelSource(
        kernel="corpus", implementation=file.stem, op="torch.mul", contract="torch-extension", entry=entry,
        schema="", files=(str(file),), headers="shadow", **{"device": "cpu", **options},
    )  # fmt: skip


@pytest.fixture(scope="module")
def bodies() -> Any:
    """The module of bodies.cpp."""
    return calls.module_of(builds.build(_source(CORPUS / "bodies.cpp", "scale")))


@pytest.mark.parametrize("name", calls.CALLS)
def test_results(bodies: Any, name: str) -> None:
    """What a body computes is what torch computes."""
    calls.check_call(bodies, name)


@pytest.mark.parametrize("name", calls.ERRORS)
def test_errors(bodies: Any, name: str) -> None:
    """What a body, its binding or torch raises arrives as the same type with the same message."""
    calls.check_error(bodies, name)


def test_names_and_mutation(bodies: Any) -> None:
    """Arguments go by name, defaults hold, mutation is seen, and a tensor that is handed back is the same object."""
    x, total = torch.tensor([1.0, -2.0, 4.0]), torch.ones(3)
    assert torch.equal(bodies.affine(x, times=2, bias=x), 3 * x)
    assert bodies.accumulate(total, [x, torch.full((1,), 2.0)], 0.5) is None
    assert total.tolist() == [5.0, 2.0, 8.0]
    assert bodies.itself(x) is x
    assert torch.equal(bodies.fails(x, "caught"), x + 1)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        bodies.affine(x, unknown=1)
    assert bodies.scale.__doc__ == "scale(arg0: torch.Tensor, arg1: float) -> torch.Tensor\n\nx * factor\n"


def test_nothing_leaks(bodies: Any) -> None:
    """References to arguments and results are given back, also where a call raises."""
    x, parts = torch.randn(4, 6), [torch.randn(4, 6)]

    def everything() -> None:
        bodies.scale(x, 2.0)
        bodies.split_signs(x)
        bodies.affine(x, None, x)
        bodies.statistics(x)
        bodies.accumulate(x.clone(), parts, 1.0)
        for how in ("check", "operator", "dimension", "caught", "type"):
            if how == "caught":
                bodies.fails(x, how)
                continue
            with pytest.raises((RuntimeError, IndexError)):
                bodies.fails(x, how)

    everything()
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(parts[0]), sys.getrefcount(None), len(gc.get_objects())
    for _ in range(200):
        everything()
    gc.collect()
    after = sys.getrefcount(x), sys.getrefcount(parts[0]), sys.getrefcount(None), len(gc.get_objects())
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 100
    assert abs(after[3] - before[3]) < 100
    result = bodies.scale(x, 2.0)
    gone = weakref.ref(result)
    del result
    assert gone() is None


def test_autograd_is_torchs(bodies: Any) -> None:
    """Operators that a body calls are recorded for the backward, as those of the real headers are."""
    a = torch.randn(6, requires_grad=True)
    bodies.arithmetic(a, torch.randn(6)).sum().backward()
    assert a.grad is not None
    assert bodies.facts(a).endswith("1")


def test_library_and_threads(project: Any, op_call: Any) -> None:
    """Dispatcher operators are registered; a source without a binding gets one; a thread may read but not call."""
    project.write("factor.h", "constexpr int factor = 3;\n")
    asks = f"#if TORCH_VERSION_MAJOR != {torch.__version__.split('.')[0]}\n#error another version\n#endif\n"
    project.write("k.cpp", asks + (CORPUS / "library.cpp").read_text(encoding="utf-8"))
    source = project.source(KERNEL)
    assert source.headers == "real"
    shadowed = replace(source, headers="shadow")
    assert shadow.real(shadowed) == source
    compiled = builds.build(shadowed)
    call, tensors = op_call("torch.nn.functional.softmax", torch.ones(2), 5)
    assert load(compiled).bind(call, tensors, [], "cpu").run()[0].tolist() == [8, 8]
    operators = torch.ops.cgins_shadow_test
    x = torch.randn(2, 3)
    assert torch.equal(operators.multiplied(x, 2.0, [6]), (x * 2).reshape(6))
    assert operators.multiplied(x.to("meta"), 2.0, [6]).shape == (6,)
    assert torch.equal(operators.added(x, x), x + x)
    assert builds.build(shadowed).cached
    assert builds.cached(source) is None
    project.write("factor.h", "constexpr int factor = 4;\n")
    assert builds.cached(shadowed) is None


def test_operator_without_a_module(tmp_path: Path) -> None:
    """An entry NAMESPACE::NAME is an operator that the library registers when it is loaded."""
    file = tmp_path / "k.cpp"
    file.write_text(
        "#include <torch/library.h>\n"
        "at::Tensor halved(const at::Tensor& x) { return x / 2; }\n"
        'TORCH_LIBRARY(cgins_shadow_loaded, m) { m.def("halved(Tensor x) -> Tensor"); }\n'
        'TORCH_LIBRARY_IMPL(cgins_shadow_loaded, CPU, m) { m.impl("halved", &halved); }\n'
    )
    source = _source(file, "cgins_shadow_loaded::halved")
    torch.ops.load_library(builds.build(source).library)
    assert torch.ops.cgins_shadow_loaded.halved(torch.ones(2)).tolist() == [0.5, 0.5]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """A source that needs more than the shadow headers have is told so, line by line."""
    file = tmp_path / "k.cpp"
    file.write_text(
        "#include <torch/extension.h>\n"
        "torch::Tensor f(torch::Tensor x) {\n"
        "  torch::nn::Linear layer(3, 4);\n"
        "  return x.storage_of_another_kind();\n"
        "}\n"
    )
    with pytest.raises(BuildError) as caught:
        builds.build(_source(file, "f"))
    text = caught.value.what
    assert "on the shadow headers refused" in text
    assert re.search(r'k.cpp:4:.*error.*\n  "storage_of_another_kind" is not in the shadow headers; ', text)
    assert re.search(
        r'k.cpp:3:.*error.*\n  "torch::nn" is not in the shadow headers; build with the real ones', text
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('k.cu(3): error: class "at::Tensor" has no member "foo"', "foo"),
        ('k.cu(3): error: namespace "torch" has no member "nested"', "nested"),
        ('k.cu(3): error: identifier "gpu_atomic" is undefined', "gpu_atomic"),
        ("k.cpp:3:9: error: 'class at::Tensor' has no member named 'foo'", "foo"),
        ("k.cpp:3:9: error: 'foo' is not a member of 'torch'", "foo"),
        ("k.cpp:3:9: error: 'Foo' does not name a type", "Foo"),
        ("k.cpp:1:10: fatal error: torch/csrc/foo.h: No such file or directory", "torch/csrc/foo.h"),
        ("k.cpp:1:10: fatal error: mine/foo.h: No such file or directory", ""),
        ("k.cpp:3:9: error: expected ';' before '}' token", ""),
        ("k.cpp:3:9: note: 'foo' was not declared in this scope", ""),
    ],
)
def test_annotate(line: str, name: str) -> None:
    """Only errors about names that torch may have are explained."""
    wanted = f'{line}\n  "{name}" is not in the shadow headers; build with the real ones' if name else line
    assert shadow.annotate(line) == wanted


def test_every_operator_is_declared(tmp_path: Path) -> None:
    """The declarations of all operators that this torch has compile, and hardly any is left out."""
    names = list(shadow_operators._schemas())
    methods, functions = shadow_operators.declarations(names)
    (tmp_path / "shadow_methods.h").write_text(methods)
    (tmp_path / "shadow_functions.h").write_text(functions)
    (tmp_path / "shadow_standard.h").write_text("")
    file = tmp_path / "all.cpp"
    file.write_text("#include <shadow/all.h>\n")
    command = [
        *toolchain.cxx(),
        "-std=c++17",
        "-fsyntax-only",
        f"-I{tmp_path}",
        f"-I{shadow.ROOT}",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(names) > 1500
    assert functions.count('cgins_operator("') > 0.75 * len(names)


def test_cuda_bodies_compile() -> None:
    """Bodies of CUDA extensions compile with torch's defines, for a named architecture."""
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    compiled = builds.build(_source(CORPUS / "kernels.cu", "gelu", device="cuda", archs=("sm_90",)))
    assert Path(compiled.library).is_file()


@pytest.mark.usefixtures("bodies")
def test_command(project: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`cgins build --shadow-headers` builds extensions on shadow headers, and never for the compile gate."""
    project.write("bodies.cpp", (CORPUS / "bodies.cpp").read_text(encoding="utf-8"))
    project.config("{op: torch.mul, contract: torch-extension, source: bodies.cpp, entry: scale}")
    monkeypatch.chdir(project.root)
    parser = argparse.ArgumentParser()
    build_command.add_parsers(parser.add_subparsers())

    def run(*words: str) -> int:
        arguments = parser.parse_args(["build", *words])
        status: int = arguments.run(arguments)
        return status

    assert run("--shadow-headers") == 0
    assert "cached" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--shadow-headers does not go with --arch"):
        run("--shadow-headers", "--arch", "sm_90")


def test_identity() -> None:
    """Shadow and real headers, and other flags, are other builds; the plan says what compiles."""
    source = _source(CORPUS / "bodies.cpp", "scale")
    plan = shadow.plan(source)
    assert builds.planner(source) is shadow.plan
    assert builds.planner(shadow.real(source)) is torch_extension.plan
    assert plan.compiler == "g++ on the shadow headers"
    flagged = replace(source, flags=("-DX=1",))
    keys = {builds.base_key(each, shadow.plan(each))[0] for each in (source, flagged)}
    assert len(keys) == 2
