"""Operators of torch from schema lines: their definitions, the C++ that calls the launcher, and refusals."""

from __future__ import annotations

import pytest

from pytest_cgins.building.builders.binding import Operator, binding, operator
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.core.errors import SourceError


def made(line: str) -> Operator:
    return operator("demo", "it", schemas.parse(line), "kernel.cpp")


@pytest.mark.parametrize(
    ("line", "definition"),
    [
        (
            "f(Tensor x, int[] n, Tensor? w=None, float eps=1e-5) -> Tensor",
            "it(Tensor x, SymInt[] n, Tensor? w, float eps) -> Tensor",
        ),
        (
            "f(Tensor x, *, int[]? n, str? s, ScalarType? d, bool[] b) -> (Tensor a, Tensor[] b_)",
            "it(Tensor x, SymInt[]? n, str? s, ScalarType? d, bool[] b) -> (Tensor, Tensor[])",
        ),
        (
            "f(Tensor(a!) x, Tensor(b!)[] y, Tensor?[] z) -> (Tensor(a!), Tensor)",
            "it(Tensor(x!) x, Tensor(y!)[] y, Tensor?[] z) -> Tensor",
        ),
        ("f(Tensor(a!) x) -> Tensor(a!)", "it(Tensor(x!) x) -> ()"),
        (
            "f(Tensor x, Scalar s, Generator? g=None) -> Tensor",
            "it(Tensor x, int s_kind, int s_integer, float s_real, float s_imaginary, int g) -> Tensor",
        ),
    ],
)
def test_definition(line: str, definition: str) -> None:
    """The operator takes what the schema line says; what the stable ABI has no type for becomes numbers."""
    assert made(line).definition == definition


def test_outputs_are_told_by_an_operator_of_numbers() -> None:
    """The operator that tells shapes has no alias marks and no symbolic numbers."""
    operator = made("f(Tensor(a!) x, int n) -> Tensor")
    assert operator.outputs_definition == "it_outputs(Tensor x, int n) -> Tensor[]"
    assert (operator.allocates, operator.mutated, operator.output_kinds) == (True, ("x",), ("tensor",))


def test_a_binding_calls_the_launcher_in_the_order_of_its_prototype() -> None:
    """Arguments, outputs, scratch memory and stream are passed as the contract orders them."""
    operator = made("f(Tensor x, str s, int[]? n=None) -> (Tensor out, Tensor[] rest)")
    declarations = schemas.prototype(operator.schema, workspace=True)
    text = binding(operator, "cuda", declarations, workspace=True, define=True)
    assert (
        "::f(x_c, s.c_str(), int64_t(s.size()), items(n), count(n), out_c, rest_c, int64_t(rest_made.size()), "
        "call_.workspace(nbytes_), nbytes_, call_.stream())"
    ) in text
    assert "STABLE_TORCH_LIBRARY_IMPL(demo, CUDA, library)" in text
    assert text.count("library.def(") == 2
    assert "library.def(" not in binding(operator, "cpu", declarations, workspace=True, define=False)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("f(int n) -> Tensor", "kernel.cpp: f takes no tensor, and torch finds a kernel by its tensors' device"),
        ("f(Tensor lambda) -> Tensor", "kernel.cpp: 'lambda' cannot be a name in torch.ops"),
        ("f(Tensor x, Scalar s, float s_real) -> Tensor", "kernel.cpp: the operator would have two arguments 's_real'"),
    ],
)  # fmt: skip
def test_refusals(line: str, what: str) -> None:
    """What torch cannot have as an operator is refused with the reason."""
    with pytest.raises(SourceError) as caught:
        made(line)
    assert caught.value.what == what
    assert caught.value.remedy
