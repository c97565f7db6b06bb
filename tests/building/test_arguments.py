"""Which arguments a kernel gets: by name, in order, and which of the op's it may leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_cgins.building.contracts.arguments import (
    call_values,
    default_of,
    match,
    require_defaults,
    signatures,
)
from pytest_cgins.building.contracts.schema import parse as schema
from pytest_cgins.building.loading.launcher import declared_values
from pytest_cgins.core.errors import ContractError, SourceError

RELU = "torch.nn.functional.relu"
GELU = "torch.nn.functional.gelu"
POOL = "torch.nn.functional.max_pool2d"
OpCall = Callable[..., tuple[Any, list[torch.Tensor]]]
x = torch.ones(1, 1, 4, 4)


@pytest.mark.parametrize(
    ("op", "arguments", "options", "name", "default"),
    [
        (f"{RELU}@backward(input)", (x, x, False), {}, "inplace", False),
        (f"{RELU}@backward(input)", (x,), {"grad_output": x, "inplace": False}, "inplace", False),
        (f"{GELU}@backward(input)", (x, x), {"approximate": "none"}, "approximate", "none"),
        (POOL, (x, 2, 2, 0, 1), {"ceil_mode": False, "return_indices": False}, "ceil_mode", False),
        (POOL, (x, 2, 2, 0, 1), {"ceil_mode": False, "return_indices": False}, "return_indices", False),
        (POOL, (x, 2, 2, 0, 1), {}, "dilation", 1),
    ],
)
def test_default_of_a_backward_is_its_ops(
    op_call: OpCall, op: str, arguments: tuple[Any, ...], options: dict[str, Any], name: str, default: object
) -> None:
    """A backward has the defaults of its op, and a dispatched function those of what it chooses between."""
    call, tensors = op_call(op, *arguments, **options)
    assert default_of(call, name, tensors) == (True, default)
    require_defaults(call, [name], "a kernel", tensors)


@pytest.mark.parametrize("name", ["grad_output", "input"])
def test_what_a_backward_needs_has_no_default(op_call: OpCall, name: str) -> None:
    """Neither the gradient nor a required argument of the op can be left out."""
    call, tensors = op_call(f"{RELU}@backward(input)", x, x)
    assert default_of(call, name, tensors) == (False, None)


def test_other_value_in_a_backward_is_refused(op_call: OpCall) -> None:
    """A backward of gelu's tanh is no case for a kernel that leaves `approximate` out."""
    call, tensors = op_call(f"{GELU}@backward(input)", x, x, approximate="tanh")
    with pytest.raises(ContractError, match="passes 'tanh', not its default 'none'"):
        require_defaults(call, ["approximate"], "a kernel", tensors)


def test_nothing_for_a_required_argument_may_be_left_out(op_call: OpCall) -> None:
    """A kernel that has no bias serves the calls that pass None for one, and no others."""
    op = "torch.ops.aten.native_layer_norm.default"
    call, tensors = op_call(op, x, [x.shape[-1]], torch.ones(x.shape[-1]), None, 1e-5)
    require_defaults(call, ["bias"], "a kernel", tensors)
    with pytest.raises(ContractError, match=r"does not take 'weight'.*, and it has no default"):
        require_defaults(call, ["weight"], "a kernel", tensors)
    elsewhere = replace(call, op="torch.ops.not_loaded.native_layer_norm.default")
    with pytest.raises(ContractError, match="does not take 'bias'"):  # it may have a default
        require_defaults(elsewhere, ["bias"], "a kernel", tensors)


def test_parts_of_a_list_have_names_for_a_schema_line(op_call: OpCall) -> None:
    """A backward of two outputs has two gradients, and the language of schema lines no dots."""
    call, tensors = op_call(f"{RELU}@backward(input)", torch.ones(()), x)
    gradient, *others = call.arguments
    gradients = [replace(gradient, name=f"grad_outputs.{number}") for number in range(2)]
    call = replace(call, arguments=(*gradients, *others))
    line = schema(
        "var_mean_backward(Tensor grad_outputs_0, Tensor grad_outputs_1, Tensor input) -> Tensor grad"
    )
    values = declared_values(call, tensors, line, "a kernel")
    assert [tuple(values[one.name].shape) for one in line.arguments] == [(), (), (1, 1, 4, 4)]
    with pytest.raises(ContractError, match=r"does not take 'grad_outputs\.1'"):
        declared_values(
            call, tensors, schema("f(Tensor grad_outputs_0, Tensor input) -> Tensor g"), "a kernel"
        )


def test_what_goes_by_keyword_alone_stays_behind_any_number_of_others(op_call: OpCall) -> None:
    """`def f(*tensors, indexing)` is an op's own signature, too."""

    def kernel(*tensors: torch.Tensor, indexing: str = "ij") -> None: ...

    call, tensors = op_call("torch.functional.meshgrid", x[0, 0, 0], x[0, 0, 0], indexing="xy")
    values = call_values(call, tensors)
    positional, keyword = match(call, values, signatures(kernel), "f", tensors)
    assert (len(positional), keyword) == (2, {"indexing": "xy"})


def written_in_c(doc: str) -> Any:
    """What pybind11 makes: a function that only its docstring describes."""

    class Function:
        __name__ = "f"
        __doc__ = doc
        __signature__ = "none"

        def __call__(self, *_: Any, **__: Any) -> None: ...

    return Function()


SCALARS = "typing.SupportsFloat | typing.SupportsIndex"


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        ("f(arg0: torch.Tensor, arg1: int) -> torch.Tensor", ["x", -1]),
        (f"f(arg0: torch.Tensor, arg1: {SCALARS}) -> torch.Tensor\n\nf(a, b, c)\n", ["x", -1]),
        ("f(x: torch.Tensor, axis: int) -> torch.Tensor", ["x", -1]),
        ("f(dim: int, input: torch.Tensor) -> torch.Tensor", {"dim": -1, "input": "x"}),
        ("f(input: torch.Tensor, *, dim: int = 3) -> torch.Tensor", {"dim": -1, "input": "x"}),
        ("f(input: torch.Tensor, /, dim: int) -> torch.Tensor", ["x", {"dim": -1}]),
        ("f(dim: int = 1, note: str = 'a, (b: \\' ]', *, input: torch.Tensor) -> None", {"dim": -1, "input": "x"}),
        ("f(input: torch.Tensor, dim: int, by: Callable[[int, int], int] = <f at 0x1>) -> None", {"dim": -1, "input": "x"}),
        ("f(input: torch.Tensor, dim: int, lambda: float = 1.0) -> None", {"dim": -1, "input": "x"}),
        ("f(*args, **kwargs)\nOverloaded function.\n\n1. f(arg0: torch.Tensor) -> None\n\n2. f(arg0: torch.Tensor, arg1: int) -> None\n", ["x", -1]),
        ("f(*args, **kwargs)\nOverloaded function.\n\n1. f(a: int, b: int, c: int, d: int, e: int, g: int) -> None\n\n2. f(arg0: torch.Tensor, arg1: int) -> None\n", ["x", -1]),
        ("f(arg0: torch.Tensor, *args) -> None", ["x", -1]),
        ("Softmax, by hand (CPU)", ["x", -1]),
        ("", ["x", -1]),
    ],
)  # fmt: skip
def test_what_pybind11_tells_of_a_function(op_call: OpCall, doc: str, expected: Any) -> None:
    """Arguments go by name where the names agree, else in the op's order, however the caller passed them."""
    tensor = torch.ones(2)
    for given, options in (((tensor, -1), {}), ((), {"input": tensor, "dim": -1}), ((tensor,), {"dim": -1})):
        call, tensors = op_call("torch.nn.functional.softmax", *given, **options)
        values = {"input": "x", "dim": -1, "_stacklevel": 3, "dtype": None}
        positional, by_name = match(call, values, signatures(written_in_c(doc)), "f", tensors)
        named = {name: value for name, value in by_name.items() if name not in ("_stacklevel", "dtype")}
        assert (named if not positional else [*positional, *([named] if named else [])]) == expected


def test_a_function_of_other_parameters_is_refused(op_call: OpCall) -> None:
    """Too many, and a name that is nearly one of the op's."""
    call, tensors = op_call("torch.nn.functional.relu", torch.ones(2))
    values = {"input": "x", "inplace": False}
    for doc, what in (
        (
            "f(arg0: int, arg1: int, arg2: int) -> None",
            r"f: it takes 3 arguments, .*relu has 2 \(input, inplace\)",
        ),
        ("f(input: int, inplase: bool = False) -> None", "its parameter 'inplase' is not one of"),
    ):
        with pytest.raises(SourceError, match=what):
            match(call, values, signatures(written_in_c(doc)), "f", tensors)


def test_what_a_call_lacks_is_never_another_argument(op_call: OpCall) -> None:
    """A function that requires `out` does not get `alpha` for it, and one that requires `dim` no `dtype`."""
    for op, function, lacking in (
        ("torch.add", "f(input: Tensor, other: Tensor, out: Tensor) -> None", "out"),
        ("torch.add", "f(a: Tensor, b: Tensor, alpha: float, *, out: Tensor) -> None", "out"),
        ("torch.sum", "f(x: Tensor, dim: int) -> Tensor", "dim"),
    ):
        call, tensors = op_call(op, *[torch.ones(2)] * (2 if op == "torch.add" else 1))
        with pytest.raises(ContractError, match=f"requires '{lacking}', and the call does not pass it"):
            match(call, call_values(call, tensors), signatures(written_in_c(function)), "f", tensors)


@pytest.mark.parametrize(
    ("op", "arguments", "free"),
    [
        ("linear@backward(input,weight,bias)", (torch.ones(4, 5), torch.ones(4, 3), torch.ones(5, 3), torch.ones(5)), {"bias"}),
        ("linear@backward(weight)", (torch.ones(4, 5), torch.ones(4, 3), torch.ones(5, 3), torch.ones(5)), {"weight", "bias"}),
        ("conv2d@backward(input,weight)", (torch.ones(1, 2, 2, 2), x, torch.ones(2, 1, 3, 3), torch.ones(2)), {"bias"}),
        ("layer_norm@backward(input)", (torch.ones(3), torch.ones(3), (3,), torch.ones(3), torch.ones(3)), {"bias"}),
        ("relu@backward(input)", (x, x), set()),
    ],
)  # fmt: skip
def test_a_backward_may_leave_out_what_no_gradient_depends_on(
    op_call: OpCall, op: str, arguments: tuple[Any, ...], free: set[str]
) -> None:
    """A bias, mostly; whatever a gradient is made of has to be taken."""
    call, tensors = op_call(f"torch.nn.functional.{op}", *arguments)
    for argument in call.arguments:
        if argument.value.kind != "tensor":
            continue
        if argument.name in free:
            require_defaults(call, [argument.name], "a kernel", tensors)
        else:
            with pytest.raises(ContractError, match=f"does not take '{argument.name}'"):
                require_defaults(call, [argument.name], "a kernel", tensors)
