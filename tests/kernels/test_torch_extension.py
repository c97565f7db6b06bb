"""Torch extensions: planned without torch, built by torch, called in the op's order."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cgins.errors import ContractError, SourceError
from pytest_cgins.kernels import build as builds
from pytest_cgins.kernels import torch_extension
from pytest_cgins.kernels.cache import Cache

KERNEL = "{op: torch.nn.functional.softmax, contract: torch-extension, source: k.cpp, entry: softmax}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch::Tensor f(torch::Tensor x,\n  double a) {\n", "torch::Tensor f(torch::Tensor x, double a);"),
        ("// f(\nstd::vector<torch::Tensor> f(const at::Tensor& x) {", "std::vector<torch::Tensor> f(const at::Tensor& x);"),
        ("static int g() { return f(1); }\nat::Tensor f() {", "at::Tensor f();"),
    ],
)  # fmt: skip
def test_declaration(text: str, expected: str) -> None:
    """The declaration that `load_inline` wants beside a CUDA source is read from it."""
    assert torch_extension.declaration("k.cu", text, "f") == expected
    assert torch_extension.declaration("k.cpp", text, "f") == ""


def test_declaration_that_cannot_be_read() -> None:
    """A definition that is made by a macro cannot be read, and the remedy says what to do."""
    with pytest.raises(SourceError) as caught:
        torch_extension.declaration("k.cu", "DEFINE(f)\n", "f")
    assert caught.value.what == 'k.cu: no definition of "f" starts a line'
    assert "list a .cpp source first" in caught.value.remedy


@pytest.mark.parametrize(
    ("arch", "name"), [("sm_80", "8.0"), ("sm_90a", "9.0a"), ("compute_120", "12.0+PTX")]
)
def test_torch_arch(arch: str, name: str) -> None:
    """Architectures are translated to torch's names."""
    assert torch_extension.torch_arch(arch) == name


@pytest.mark.slow
def test_built_and_called(project: Any, op_call: Any) -> None:
    """An unmodified extension source is built, found again until its header changes, and called in order."""
    import torch

    from pytest_cgins.kernels.callable import load

    project.write("factor.h", "constexpr int factor = 3;\n")
    project.write(
        "k.cpp",
        '#include "factor.h"\ntorch::Tensor softmax(torch::Tensor x, int64_t dim) '
        "{ return x * factor + dim; }\n",
    )
    compiled = project.build(KERNEL)
    assert not compiled.cached
    again = project.build(KERNEL)
    assert again.cached
    call, tensors = op_call("torch.nn.functional.softmax", torch.ones(2), 5)
    assert load(again).bind(call, tensors, [], "cpu").run()[0].tolist() == [8, 8]
    call, tensors = op_call("torch.nn.functional.softmax", torch.ones(2), 5, dtype=torch.float64)
    with pytest.raises(ContractError, match="does not take 'dtype'"):
        load(again).bind(call, tensors, [], "cpu")
    plan = torch_extension.plan(again.source)
    base, _ = builds.base_key(again.source, plan)
    assert Cache(builds.default_cache()).lookup(base, plan.roots) is not None
    project.write("factor.h", "constexpr int factor = 4;\n")
    assert Cache(builds.default_cache()).lookup(base, plan.roots) is None
