"""What verification knows of an op by its words."""

from __future__ import annotations

import pytest
import torch

from pytest_cgins.model import Argument, OpCall, TensorMeta, Value
from pytest_cgins.verify import inputs
from pytest_cgins.verify.semantics import chooses, lane_dims, of


def call(op: str, *names: str) -> OpCall:
    """A call whose arguments are tensors."""
    return OpCall(
        op=op,
        arguments=tuple(
            Argument(name=name, value=Value(kind="tensor", value=index), passed="keyword")
            for index, name in enumerate(names)
        ),
    )


def meta(*shape: int) -> TensorMeta:
    return TensorMeta(dtype="float32", shape=shape, stride=(1,) * len(shape), offset=0, storage=0)


LAYER_NORM = call(
    "torch.nn.functional.layer_norm@backward(input,args.0,weight)", "input", "weight", "grad_output"
)


def test_a_backward_has_the_roles_of_its_op_and_a_gradient_that_is_data() -> None:
    """Also where the gradient has one dimension, or its op takes positive numbers only."""
    semantics = of(LAYER_NORM)
    roles = [semantics.role(index, meta(*shape)) for index, shape in enumerate([(4, 8), (8,), (4, 8)])]
    assert roles == ["data", "parameter", "data"]
    assert [semantics.is_gradient(index) for index in range(3)] == [False, False, True]
    assert of(call("torch.log@backward(input)", "input", "grad_output")).role(1, meta(8)) == "data"
    assert of(call("torch.max@backward(input)", "input", "grad_outputs.0")).is_gradient(1)


def test_rows_of_a_backward_are_those_of_its_op() -> None:
    """The words of the op count, not the names of the arguments behind them."""
    assert lane_dims(call("torch.nn.functional.batch_norm@backward(input)", "input"), (2, 3, 4, 4)) == (1,)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("torch.nn.functional.max_pool2d@backward(input)", True),
        ("torch.maximum@backward(input,other)", True),
        ("torch.Tensor.topk@backward(self)", True),
        ("torch.nn.functional.max_pool2d", False),
        ("torch.nn.functional.softmax@backward(input)", False),
        ("torch.nn.functional.avg_pool2d@backward(input)", False),
        ("torch.nn.functional.relu@backward(input)", False),
    ],
)
def test_backwards_that_depend_on_a_choice_are_known(op: str, expected: bool) -> None:
    """Their edge rows would have ties."""
    assert chooses(call(op, "input")) is expected


def test_gradients_keep_both_signs_where_the_op_takes_positive_numbers() -> None:
    """log's input stays positive, what comes back to it does not; and edge rows leave it as N(0, 1)."""
    log = call("torch.log@backward(input)", "input", "grad_output")
    recorded = [torch.rand(64, 32) + 0.1, torch.rand(64, 32)]
    for make in (inputs.fresh, inputs.edge):
        x, g = make(log, recorded, "key")
        assert (x >= 0).all()
        assert (g < 0).any()
    assert 0.9 < float(g.std()) < 1.1
