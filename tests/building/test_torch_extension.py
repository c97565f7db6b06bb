"""Torch extensions: planned and built without torch, called in the op's order."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building import build as builds
from pytest_cgins.building.builders import extension_pch, torch_extension
from pytest_cgins.building.cache.store import Cache
from pytest_cgins.building.compilers.toolchain import nvcc
from pytest_cgins.building.loading.extension_function import load as load_function
from pytest_cgins.building.loading.extension_function import modules_of
from pytest_cgins.core.errors import BuildError, ConfigError, ContractError, LaunchError, SourceError

# Parsing is what these builds cost; without optimisation they cost little more.
SOFTMAX = "torch.nn.functional.softmax"
KERNEL = "{op: torch.nn.functional.softmax, contract: torch-extension, source: k.cpp, entry: softmax, flags: [-O0]}"
CORPUS = Path(__file__).parent / "extensions"


@pytest.fixture(autouse=True)
def _no_precompiled_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making it takes longer than the few builds here would save."""
    monkeypatch.setattr(extension_pch, "USES_BEFORE", 1000)


def _record(compiled: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(Path(compiled.library).with_name("build.json").read_bytes())
    return record


def _lean(compiled: Any) -> bool:
    """Whether the last compilation was with lean headers."""
    return "/lean" in _record(compiled)["command"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch::Tensor f(torch::Tensor x,\n  double a) {\n", "torch::Tensor f(torch::Tensor x, double a);"),
        ("// f(\nstd::vector<torch::Tensor> f(const at::Tensor& x) {", "std::vector<torch::Tensor> f(const at::Tensor& x);"),
        ("static int g() { return f(1); }\nat::Tensor f() {", "at::Tensor f();"),
    ],
)  # fmt: skip
def test_declaration(text: str, expected: str) -> None:
    """The declaration that the binding wants beside a CUDA source is read from it."""
    assert torch_extension.declaration({"k.cu": text}, "f") == expected
    assert torch_extension.declaration({"k.cpp": text}, "f") == ""
    assert torch_extension.declaration({"a.cpp": "int g();", "k.cu": text}, "f") == expected


def test_declaration_that_cannot_be_read() -> None:
    """A definition that is made by a macro cannot be read, and the remedy says what to do."""
    with pytest.raises(SourceError) as caught:
        torch_extension.declaration({"k.cu": "DEFINE(f)\n"}, "f")
    assert caught.value.what == 'k.cu: no definition of "f" starts a line'
    assert "list a .cpp source that declares it" in caught.value.remedy
    with pytest.raises(SourceError, match=r'"f" is static: the binding.* cannot call it') as caught:
        torch_extension.declaration({"k.cu": "static at::Tensor f(at::Tensor x) {\n"}, "f")
    assert caught.value.remedy == "remove static"


def test_units(project: Any) -> None:
    """A source gets a binding unless it has one, and one that only registers operators is not a module."""
    project.write("k.cpp", "torch::Tensor softmax(torch::Tensor x) { return x; }")
    made = torch_extension.units(project.source(KERNEL), ("1",))
    assert 'm.def("softmax", torch::wrap_pybind_function(softmax), "softmax");' in "".join(made.cpp)
    assert f'#line 1 "{project.root / "k.cpp"}"' in "".join(made.cpp)
    assert made.module != torch_extension.units(project.source(KERNEL), ("2",)).module
    own = 'at::Tensor softmax(at::Tensor x);\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("f", &{}); }}'
    project.write("k.cpp", own.format("softmax"))
    assert "wrap_pybind_function" not in "".join(torch_extension.units(project.source(KERNEL), ()).cpp)
    project.write("k.cpp", own.format("other"))
    assert "wrap_pybind_function(softmax)" in "".join(torch_extension.units(project.source(KERNEL), ()).cpp)
    project.write("k.cpp", "TORCH_LIBRARY(mine, m) {}")
    made = torch_extension.units(project.source(KERNEL.replace("entry: softmax", "entry: 'mine::f'")), ())
    assert "PYBIND11_MODULE" not in "".join(made.cpp)


@pytest.mark.parametrize(("include", "count"), [("#include <torch/extension.h>\n", 2), ("", 1)])
def test_several_sources(project: Any, include: str, count: int) -> None:
    """They are compiled apart, as by `CppExtension`; those that count on the headers of `load_inline` are joined as by it."""
    project.write("a.cpp", f"{include}at::Tensor half(at::Tensor x) {{ return x / 2; }}")
    project.write("b.cpp", f"{include}at::Tensor softmax(at::Tensor x) {{ return half(x); }}")
    kernel = KERNEL.replace("source: k.cpp", "sources: [a.cpp, b.cpp]")
    units = torch_extension.units(project.source(kernel), ())
    assert len(units.cpp) == count
    assert "softmax(at::Tensor" in units.cpp[-1]
    assert "wrap_pybind_function(softmax)" in units.cpp[-1]


KERNEL_BUILDER = {
    "hub/build.toml": """
[general]
name = "hub"
[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]
[kernel.doubled]
backend = "cpu"
depends = ["torch"]
src = ["doubled/doubled.cpp"]
[kernel.doubled_cuda]
backend = "cuda"
src = ["doubled/doubled.cu"]
""",
    "hub/torch-ext/torch_binding.h": "#pragma once\n#include <torch/torch.h>\nat::Tensor doubled(at::Tensor const& x);\n",
    "hub/torch-ext/torch_binding.cpp": "static int factor() { return 3; }\n"
    '#include <torch/library.h>\n#include "registration.h"\n'
    '#include "torch_binding.h"\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {\n'
    '  ops.def("doubled(Tensor x) -> Tensor");\n  ops.impl("doubled", torch::kCPU, &doubled);\n}\n'
    "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n",
    "hub/doubled/doubled.cpp": '#include "torch_binding.h"\nstatic int factor() { return 2; }\n'
    "at::Tensor doubled(at::Tensor const& x) { return x * factor(); }\n",
}


@pytest.mark.exam
def test_the_layout_of_hugging_faces_kernels(project: Any) -> None:
    """A build.toml as the only source: its kernels for the device, its binding, and the macros that its builder gives."""
    import torch

    for name, text in KERNEL_BUILDER.items():
        project.write(name, text)
    kernel = "{op: torch.nn.functional.softmax, device: cpu, source: hub/build.toml, entry: doubled}"
    source = project.source(kernel)
    assert [Path(file).name for file in source.files] == ["torch_binding.cpp", "doubled.cpp"]
    function = load_function(project.build(kernel))
    assert torch.equal(function(torch.ones(2)), torch.full((2,), 2.0))


def test_a_build_toml_without_a_kernel_for_the_device(project: Any) -> None:
    """It is told with the backends that there are, and flags that would be lost are refused."""
    project.write("hub/build.toml", KERNEL_BUILDER["hub/build.toml"].replace('"cpu"', '"xpu"'))
    kernel = "{op: torch.nn.functional.softmax, device: cpu, source: hub/build.toml, entry: doubled}"
    with pytest.raises(ConfigError, match="has no kernel for cpu") as caught:
        project.source(kernel)
    assert caught.value.remedy == "its kernels are for xpu, cuda"
    project.write("hub/build.toml", KERNEL_BUILDER["hub/build.toml"] + 'cuda-flags = ["-DX"]\n')
    with pytest.raises(ConfigError, match=r"cuda-flags in hub/build\.toml are not taken over"):
        project.source(kernel.replace("device: cpu", "device: cuda"))


def test_operator_that_is_not_registered(project: Any) -> None:
    """An entry NAMESPACE::NAME needs a registration of the namespace in the sources."""
    project.write("k.cpp", "// TORCH_LIBRARY(mine, m)\nTORCH_LIBRARY(other, m) {}")
    with pytest.raises(SourceError, match='no TORCH_LIBRARY registers "mine"'):
        project.source(KERNEL.replace("entry: softmax", "entry: 'mine::f'"))


@pytest.mark.exam
def test_corpus(project: Any) -> None:
    """What extensions commonly do compiles with lean headers, and gives what torch gives."""
    import torch

    project.write("k.cpp", (CORPUS / "common.cpp").read_text(encoding="utf-8"))
    compiled = project.build(KERNEL.replace("entry: softmax", "entry: scaled"))
    assert _lean(compiled)
    (module,) = modules_of(compiled)

    x = torch.randn(4, 6)
    assert torch.equal(module.scaled(x), x * 2)
    assert torch.equal(module.scaled(x, 3.0), x * 3)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        assert torch.equal(module.negated(x.to(dtype)), -x.to(dtype))
    assert torch.equal(module.absolute(torch.tensor([-0.5, 0.25])), torch.tensor([0.5, 0.25]))
    low, high = module.halves(x)
    assert torch.equal(torch.cat([low, high]), x)
    assert torch.equal(module.joined([low, high], 0), x)
    assert torch.equal(module.shifted(x, None), x)
    assert torch.equal(module.shifted(x, x), x + x)
    assert torch.equal(module.rows(x, 1), x[:, 1:3])
    made = module.factories(3, "cpu")
    assert [m.dtype for m in made] == [torch.float32, torch.float64, torch.int64, torch.float32, torch.int64]
    assert [m.requires_grad for m in made] == [True, False, False, False, False]
    assert made[0].is_leaf
    assert [m.tolist() for m in made[1:]] == [[1.0] * 3, [0, 1, 2], [7.0] * 3, [1, 2, 3]]
    assert torch.equal(module.composed(x), torch.softmax(x.sum(0, keepdim=True).relu() + 1, -1))
    assert torch.equal(module.parallel(x), x + 1)
    with pytest.raises(RuntimeError, match="expected two dimensions, got 1"):
        module.rows(x[0], 1)


@pytest.mark.exam
def test_whole_headers_where_lean_ones_do_not_do(project: Any, bind: Any) -> None:
    """A source that needs more of torch than the lean headers have is compiled with the whole ones."""
    import torch

    project.write(
        "k.cpp",
        """torch::Tensor softmax(torch::Tensor x, int64_t dim) {
  auto out = torch::empty_like(x);
  auto iterator = at::TensorIteratorConfig().add_output(out).add_const_input(x).build();
  return iterator.output(0).fill_(dim);
}
""",
    )
    # What the source and the binding need: torch/extension.h itself takes five times as long.
    headers = ("ATen/core/Tensor.h", "ATen/TensorIterator.h", "ATen/ops/empty_like.h",
               "torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h")  # fmt: skip
    lines = [*(f"#include <{header}>\n" for header in headers), "namespace torch { using namespace at; }\n"]
    project.write("include/torch/extension.h", "".join(lines))
    compiled = project.build(KERNEL.replace("-O0", "-O0, -I, include"))
    assert not _lean(compiled)
    assert bind(compiled, SOFTMAX, torch.ones(2), 5).run()[0].tolist() == [5, 5]
    with pytest.raises(ContractError, match="does not take 'dtype'"):
        bind(compiled, SOFTMAX, torch.ones(2), 5, dtype=torch.float64)


def test_error_has_the_users_file_and_line(project: Any) -> None:
    """A source that the whole headers refuse is shown with its own file and line, once."""
    # Torch's own would take 15 s to be read before the error; the source is none for lean headers.
    project.write("include/torch/extension.h", "#define C10_WHOLE 1\n")
    project.write(
        "k.cpp", "#if C10_WHOLE\n#define VALUE 1\n#endif\n\nint softmax(int x) { return VALUE + (x; }\n"
    )
    with pytest.raises(BuildError) as caught:
        project.build(KERNEL.replace("-O0", "-O0, -I, include"))
    assert "k.cpp:5:" in caught.value.what
    assert "VALUE" not in caught.value.what.partition("{")[0], "the whole headers' macro was there"
    assert len(re.findall(r"k\.cpp:5:\d+: error: ", caught.value.log)) == 1


@pytest.mark.exam
def test_operator(project: Any, bind: Any) -> None:
    """A source with TORCH_LIBRARY and no module is loaded as operators; a second registration is refused.

    It is found again until its header changes.
    """
    import torch

    from pytest_cgins.building.loading.callable import load

    kernel = KERNEL.replace("entry: softmax", "entry: 'cgins_tested::plus'")
    project.write("one.h", "constexpr int one = 1;\n")
    text = """#include "one.h"
at::Tensor plus(const at::Tensor& x, int64_t dim) { return x + dim * one; }
TORCH_LIBRARY(cgins_tested, m) { m.def("plus(Tensor x, int dim) -> Tensor", &plus); }
"""
    project.write("k.cpp", text)
    compiled = project.build(kernel)
    assert _lean(compiled)
    assert bind(compiled, SOFTMAX, torch.ones(2), 5).run()[0].tolist() == [6, 6]
    copy = Path(compiled.library).with_name("copy.so")
    copy.write_bytes(Path(compiled.library).read_bytes())
    try:
        with pytest.raises(LaunchError, match="cgins_tested::plus is registered in this process already"):
            load(replace(compiled, library=str(copy)))
    finally:
        copy.unlink()
    assert project.build(kernel).cached
    plan = torch_extension.plan(compiled.source)
    base, _ = builds.base_key(compiled.source, plan)
    assert Cache(builds.default_cache()).lookup(base, plan.roots) is not None
    project.write("one.h", "constexpr int one = 2;\n")
    assert Cache(builds.default_cache()).lookup(base, plan.roots) is None


@pytest.mark.exam
@pytest.mark.skipif(not Path(nvcc()[0]).exists(), reason="no nvcc")
def test_cuda_corpus(project: Any) -> None:
    """What CUDA extensions commonly do compiles with lean headers."""
    project.write("k.cu", (CORPUS / "common.cu").read_text(encoding="utf-8"))
    # A torch for CPUs has c10's headers for CUDA but for this one, which its build for CUDA writes.
    project.write("c10/cuda/impl/cuda_cmake_macros.h", "#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    compiled = project.build(
        "{op: torch.mul, device: cuda, contract: torch-extension, source: k.cu, entry: scaled, archs: [sm_90], flags: [-O0]}"
    )
    assert _lean(compiled)
    assert "cicc" in _record(compiled)["command"]


NAMES = {
    "forward": 2.0, "scaled_cpu": 2.0, "defaults": 2.0, "only": 2.0, "lambda": 3.0, "lambda_impl": 3.0, "several": 3.0,
    "several_two": 3.0, "renamed": -1.0, "renamed_impl": -1.0, "one_half": 0.5, "thrice": 6.0, "thrice_impl": 6.0,
    "deep.inner": 8.0, "inner": 8.0, "inner_impl": 8.0, "deep.twice_there": 8.0, "twice_there": -1.0,
    "Holder.held": 12.0, "held": 12.0, "elsewhere": 10.0, "elsewhere_impl": 10.0, "operated": 20.0, "operated_impl": 20.0,
}  # fmt: skip
"""Entries of `exports.cpp`, by the exported and by the C++ function's name, and what they make of 1 and dim=2."""

WITHOUT_DIM = ("one_half", "Holder.held", "held", "elsewhere", "elsewhere_impl", "deep.twice_there")


@pytest.mark.exam
def test_an_entry_is_an_exported_name_or_the_functions_own(project: Any, bind: Any) -> None:
    """In modules, submodules and classes, by macros, lambdas, helpers and headers, as operators, with and without names.

    A function that is exported by no module is bound besides.
    """
    import torch

    from pytest_cgins.building.loading.callable import load

    for name in ("exports.cpp", "exports.h"):
        project.write(name, (CORPUS / name).read_text(encoding="utf-8"))
    kernel = "{op: torch.nn.functional.softmax, contract: torch-extension, source: exports.cpp, entry: ENTRY, flags: [-O0]}"
    compiled = project.build(kernel.replace("ENTRY", "unexported"))
    for entry, expected in {**NAMES, "unexported": 2000.0}.items():
        source = project.source(kernel.replace("ENTRY", entry))
        # The library has all of them: what is bound besides is found, too.
        kernel_of = load(replace(compiled, source=source))
        for given, named in (((2,), {}), ((), {"dim": 2})):
            x = torch.ones(1)
            if entry not in WITHOUT_DIM and "inner" not in entry:
                assert bind(kernel_of, SOFTMAX, x, *given, **named).run()[0].tolist() == [expected], entry
                continue
            with pytest.raises(ContractError, match="does not take 'dim', and the call passes 2"):
                bind(kernel_of, SOFTMAX, x, *given, **named)
            assert load_function(replace(compiled, source=source))(x).tolist() == [expected], entry
