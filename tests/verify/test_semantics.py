"""What verification knows of an op by its words."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_cgins.config import declared
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value
from pytest_cgins.verify import inputs
from pytest_cgins.verify.semantics import FILE, chooses, facts_of, lane_dims, semantics_for


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
    semantics = semantics_for(LAYER_NORM)
    roles = [semantics.role(index, meta(*shape)) for index, shape in enumerate([(4, 8), (8,), (4, 8)])]
    assert roles == ["data", "parameter", "data"]
    assert [semantics.is_gradient(index) for index in range(3)] == [False, False, True]
    assert semantics_for(call("torch.log@backward(input)", "input", "grad_output")).role(1, meta(8)) == "data"
    assert semantics_for(call("torch.max@backward(input)", "input", "grad_outputs.0")).is_gradient(1)


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


def test_constant_under_a_root_is_known_by_whole_words() -> None:
    """`n_steps` holds the letters of eps, and is none."""
    steps = Argument(name="n_steps", value=Value(kind="float", value=(3.0).hex()), passed="keyword")
    eps = Argument(name="norm_eps", value=Value(kind="float", value=(0.5).hex()), passed="keyword")
    both = OpCall(op="project.my_norm", arguments=(steps, eps))
    assert (semantics_for(both).kind, semantics_for(both).eps) == ("norm", 0.5)
    assert semantics_for(OpCall(op="project.my_norm", arguments=(steps,))).kind == "other"


@pytest.mark.parametrize(
    ("op", "sort", "domains"),
    [
        ("torch.log", "unary", ((0.0, math.inf),)),
        ("torch.Tensor.asin_", "unary", ((-1.0, 1.0),)),
        ("torch.ops.aten.sqrt.default", "unary", ((0.0, math.inf),)),
        ("torch.nn.functional.relu", "unary", ((-math.inf, math.inf),)),
        ("torch.relu", "unary", ((-math.inf, math.inf),)),
        ("torch.pow", "binary", ((0.0, math.inf), (0.0, math.inf))),
        ("torch.sum", "reduction", ()),
        ("torch.arccos", "unary", ((-1.0, 1.0),)),
    ],
)
def test_ops_of_torch_are_known_of_its_tests(
    op: str, sort: str, domains: tuple[tuple[float, float], ...]
) -> None:
    """By functional, method, in-place, ATen and alias names."""
    facts = facts_of(op)
    assert facts is not None
    assert (facts.sort, facts.domains) == (sort, domains)
    assert "float32" in facts.floats


def test_functions_of_users_are_not_taken_for_those_of_torch() -> None:
    """Only torch's own names are looked up."""
    assert facts_of("project.log") is None
    assert facts_of("torch.no_such_op") is None


def test_fresh_inputs_lie_where_the_op_is_defined() -> None:
    """asin is given numbers within [-1, 1], also where the recorded ones do not show that."""
    x = inputs.fresh(call("torch.asin", "input"), [torch.linspace(-0.9, 0.9, 640).reshape(10, 64)], "key")[0]
    assert float(x.abs().max()) <= 1
    assert (x < 0).any()


def test_what_the_user_says_comes_first() -> None:
    """Roles, kind, rows and domain that are declared replace what names tell."""
    said = declared(
        {
            "kind": "softmax",
            "roles": {"weight": "data", "x": "mask"},
            "rows": {"weight": [1]},
            "domain": {"weight": [0, 2]},
        }
    )
    semantics = semantics_for(call("project.mix", "x", "weight"), said)
    assert semantics.kind == "softmax"
    assert (semantics.role(0, meta(4, 8)), semantics.kept(0, meta(4, 8))) == ("keep", "mask")
    assert semantics.role(1, meta(4, 8)) == "data"
    assert semantics.lanes(call("project.mix"), 1, (4, 8)) == (1,)
    assert semantics.domain(1) == (0.0, 2.0)


@pytest.mark.exam
def test_file_of_torchs_tests_is_current() -> None:
    """`python -m tests.write_op_semantics` would write the same with this torch."""
    pytest.importorskip("expecttest", reason="torch's test package imports it")
    written = FILE.read_text(encoding="utf-8")
    version = json.loads(written)["torch"]
    if str(torch.__version__).partition("+")[0] != version:
        pytest.skip(f"the file is of torch {version}, this is {torch.__version__}")
    # In a process of its own: torch's test package forbids changes of settings for good.
    code = "from tests import write_op_semantics; print(write_op_semantics.text(), end='')"
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    assert ran.stdout == written
