"""Kernels that have torch compute their answers, and kernels that only use torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Argument, Context, OpCall, Value
from pytest_cgins.verify.op_calls import op_calls
from pytest_cgins.verify.probe_support.op_families import family, is_free, plain
from pytest_cgins.verify.probes import op_callback

Watched = Callable[..., dict[str, Any]]
OWN = {"relu": 4}
RMS_NORM = {"pow": 64, "mean": 64, "rsqrt": 8, "mul": 128}


def _message(watched: Watched, body: str, before: str = "") -> str:
    text = f"import torch\n{before}\ndef relu(input):\n    {body}\n"
    result = watched(text, op_callback.NAME)
    assert result["sets"][0]["error"] is None, result["sets"][0]["error"]
    return op_callback.judge(result["observed"][op_callback.NAME], OWN)


@pytest.mark.exam
@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("return torch.relu(input)", ""),
        ("return torch.ops.aten.relu.default(input)", ""),
        ("return input.clone().relu_()", ""),
        ("return torch.stack([row.relu() for row in input])", ""),
        (
            "return torch._C._nn.relu(input) if hasattr(torch._C._nn, 'relu') else torch._C._VariableFunctions.relu(input)",
            "",
        ),
        ("return torch.nn.ReLU()(input)", ""),
        (
            "return scripted(input)",
            "@torch.jit.script\ndef scripted(x: torch.Tensor):\n    return torch.relu(x)",
        ),
        (
            "with ThreadPoolExecutor(1) as p:\n        return p.submit(torch.relu, input).result()",
            "from concurrent.futures import ThreadPoolExecutor",
        ),
        (
            "with _disable_current_modes():\n        return torch.relu(input)",
            "from torch.utils._python_dispatch import _disable_current_modes",
        ),
        ("try:\n        1 / 0\n    except ZeroDivisionError:\n        return torch.relu(input)", ""),
    ],
)
def test_calls_of_the_op_are_seen(watched: Watched, body: str, before: str) -> None:
    """By whatever name, in pieces, on another thread, with modes switched off."""
    message = _message(watched, body, before)
    assert "the kernel has torch compute its answer: it runs aten::relu" in message


@pytest.mark.exam
@pytest.mark.parametrize(
    "body",
    [
        "return torch.where(input > 0, input, 0.0)",
        "out = torch.empty_like(input); out.copy_(input); out[out < 0] = 0; return out",
        "x = input.to(torch.float64).t().contiguous(); return (x * (x > 0)).t().to(input.dtype).contiguous()",
        "torch.relu(torch.zeros(1)); return torch.maximum(input, torch.zeros_like(input))",  # not on its operand
        "return torch.from_numpy(input.numpy().clip(0, None))",
    ],
)
def test_other_operators_are_not(watched: Watched, body: str) -> None:
    """Views, copies, casts, and operators that are not the op's."""
    assert _message(watched, body) == ""


def test_torch_s_own_operators_are_back_afterwards(watched: Watched) -> None:
    """What is put before them is taken away with the request."""
    _message(watched, "return torch.where(input > 0, input, 0.0)")
    assert not [
        name for name in torch.library._impls if name.startswith("aten/relu") and name.endswith("/CPU")
    ]
    assert torch.equal(torch.relu(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize(
    ("own", "calls", "tripped"),
    [
        ({"addmm": 64}, {"mm": 64}, True),
        ({"addmm": 64}, {"bmm": 1, "relu": 64}, True),
        ({"addmm": 64}, {"mul": 64, "sum": 64}, False),
        ({"mm": 64, "add": 8}, {"linear": 64}, True),
        ({"convolution": 64}, {"im2col": 64, "mm": 64}, True),
        ({"convolution": 64}, {"mkldnn_convolution": 64}, True),
        ({"convolution": 64}, {"mm": 64}, True),
        ({"addmm": 64}, {"convolution": 64}, True),
        # the heavy part of a composite
        ({"log_softmax": 64, "nll_loss_forward": 64}, {"log_softmax": 64, "gather": 64}, True),
        ({"log_softmax": 64, "nll_loss_forward": 64}, {"logsumexp": 64}, True),
        ({"log_softmax": 64, "nll_loss_forward": 64}, {"log_softmax": 16, "gather": 64}, False),
        ({"log_softmax": 64, "nll_loss_forward": 64}, {"gather": 64, "exp": 64, "sum": 64}, False),
        # by another name, and a reduction's last stage
        ({"relu": 64}, {"threshold": 64}, True),
        ({"add": 64}, {"foreach_add": 64}, True),
        ({"sum": 64}, {"mean": 64}, True),
        ({"sum": 64}, {"mv": 64}, True),
        ({"sum": 64}, {"sum": 8}, False),
        # of another set of inputs
        ({"sum": 64, "": 64}, {"sum": 80, "": 640}, False),
        ({"sum": 64, "": 64}, {"sum": 6, "": 6}, True),
        ({"native_layer_norm": 64}, {"native_batch_norm": 64}, True),
        ({"scaled_dot_product_flash_attention_for_cpu": 64}, {"bmm": 64, "softmax": 64}, True),
        ({"scaled_dot_product_flash_attention_for_cpu": 64}, {"bmm": 64, "exp": 64}, False),
        ({"softmax": 64}, {"log_softmax": 64}, True),
        # what is not its own and computes it all the same
        ({"softmax": 64}, {"scaled_dot_product_flash_attention_for_cpu": 64}, True),
        ({"addmm": 64}, {"embedding_bag_forward_only": 64}, True),
        ({"addmm": 64}, {"embedding": 64}, False),
        ({"addmm": 64}, {"linalg_solve_triangular": 64}, True),
        ({"embedding": 64}, {"embedding_bag": 64}, True),
        ({"linalg_solve": 64}, {"mm": 64}, False),
        ({"addmm": 64, "gelu": 64}, {"addmm": 64}, True),
        ({"addmm": 64, "gelu": 64}, {"mm": 64, "gelu": 64}, True),
        # a marked function
        (RMS_NORM, RMS_NORM, True),
        (RMS_NORM, {"rsqrt": 8, "mul": 2}, False),
        # a backward: its forward is no part of it
        ({"gelu": 64, "gelu_backward": 64}, {"gelu_backward": 64}, True),
        ({"gelu": 64, "gelu_backward": 64}, {"gelu": 64}, False),
        # an op that only copies
        ({"cat": 64}, {"cat": 64}, True),
        ({"cat": 64}, {"empty": 64}, False),
        ({"relu": 64}, {"relu": 31}, False),
        ({}, {"relu": 64}, False),
    ],
)
def test_what_counts_as_the_op(own: dict[str, int], calls: dict[str, int], tripped: bool) -> None:
    """An operator of its family, its equivalent by others, or all that it consists of."""
    assert bool(op_callback.judge([{"exp": 1}, calls], own)) == tripped


@pytest.mark.parametrize(
    ("function", "tensors", "families"),
    [
        ("torch.nn.functional.linear", [(4, 8), (16, 8), (16,)], {"contraction"}),
        ("torch.matmul", [(2, 4, 8), (2, 8, 4)], {"contraction"}),
        ("torch.nn.functional.conv2d", [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], {"contraction"}),
        ("torch.nn.functional.gelu", [(4, 8)], {"gelu"}),
        ("torch.nn.functional.scaled_dot_product_attention", [(1, 2, 8, 16)] * 3, {"attention"}),
    ],
)
def test_what_torch_runs_is_told(function: str, tensors: list[tuple[int, ...]], families: set[str]) -> None:
    """Whatever an op decomposes into in this version, its work is of a known family."""
    arguments = tuple(
        Argument(name=f"a{number}", value=Value(kind="tensor", value=number), passed="positional")
        for number in range(len(tensors))
    )
    call = OpCall(op=function, arguments=arguments)
    calls = op_calls(call, lay_out([torch.randn(shape) for shape in tensors]), Context(), "cpu")
    assert {family(name) for name in calls if name and not is_free(name)} == families


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "div": lambda x: x / 0.0706053,
    "div_": lambda x: x.clone().div_(0.0706053),
    "mul": lambda x: x * 0.0706053,
    "reciprocal": lambda x: 0.0706053 / x,
    "add": lambda x: x + 0.0706053,
    "floor_divide": lambda x: x // 0.0706053,
    "complex": lambda x: x.float() * 0.3j,
    "integer": lambda x: (x * 16).long() * 0.0706053,
    "boolean": lambda x: (x > 1) * 3,
    "where": lambda x: torch.where(x > 1, x, 0.0706053),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_plain_number_keeps_all_its_digits(name: str, dtype: torch.dtype) -> None:
    """An operator that is watched gives, bit for bit, what torch gives: it takes half precision times a number in fp32."""
    x = (torch.arange(1, 1001) / 64).to(dtype)
    right = NUMBERS[name](x)
    told: list[str] = []
    own = dict.fromkeys(("div", "mul", "add", "floor_divide", "where", "reciprocal"), 1000)
    overrides = op_callback.Overrides(own, "cpu", lambda op, _, __: told.append(plain(op._schema.name)))
    overrides.install()
    try:
        given = NUMBERS[name](x)
    finally:
        overrides.remove()
    assert given.dtype == right.dtype
    assert torch.equal(given, right)
    assert told or not hasattr(torch.library, "get_kernel")


def test_a_tensor_is_not_asked_how_large_it_is() -> None:
    """What is hung on it in the place of its own method is not called."""
    tensor, counter = torch.ones(4), op_callback.Counter()
    tensor.numel = lambda: 0  # type: ignore[method-assign]
    counter.add(torch.ops.aten.exp.default, (tensor,), None)
    assert counter.calls == {"exp": 4}


def test_names_of_families() -> None:
    """In-place, internal and backend forms are one family; operators that only look alike are not."""
    same = ("aten::_convolution", "aten::cudnn_convolution_transpose", "aten::_slow_conv2d_forward")
    assert {family(plain(name)) for name in same} == {"contraction"}
    assert family(plain("aten::_softmax_backward_data")) == "softmax"
    assert family(plain("aten::norm")) == "norm"
    assert family(plain("aten::add_")) == "add"
    assert is_free(plain("aten::_to_copy"))
    assert not is_free(plain("aten::copysign"))


def test_facts_of_a_broken_worker_are_refused() -> None:
    """The judge takes nothing but what our own watch tells."""
    with pytest.raises((TypeError, ValueError, AttributeError)):
        op_callback.judge(["relu"], OWN)  # type: ignore[list-item]


OPERATOR = """
library = torch.library.Library("cgins_test_{number}", "DEF")
library.define("relu(Tensor[] x) -> Tensor")
library.impl("relu", lambda x: {body}, "{key}")
"""


@pytest.mark.parametrize("key", ["CPU", "CompositeExplicitAutograd"])
def test_a_fallback_inside_an_operator_of_the_kernel_is_seen(watched: Watched, key: str) -> None:
    """Its own operator may be named as it likes: what it runs counts."""
    before = OPERATOR.format(number=f"inside_{key}", key=key, body="torch.relu(x[0])")
    message = _message(watched, f"return torch.ops.cgins_test_inside_{key}.relu([input])", before)
    assert "it runs aten::relu, and the op itself runs aten::relu" in message


@pytest.mark.exam
def test_an_operator_of_the_kernel_is_not_judged_by_its_name(watched: Watched) -> None:
    """`myext::relu` that computes relu itself is what a kernel should be; memory in it is poisoned."""
    before = OPERATOR.format(number="name", key="CPU", body="torch.where(x[0] > 0, x[0], 0.0)")
    assert _message(watched, "return torch.ops.cgins_test_name.relu([input])", before) == ""
    before = OPERATOR.format(number="empty", key="CPU", body="torch.empty_like(x[0])")
    text = f"import torch\n{before}\ndef relu(input):\n    return torch.ops.cgins_test_empty.relu([input])\n"
    assert watched(text, "poison")["answer"][0].isnan().all()


def test_the_user_s_operator_counts_by_its_whole_name() -> None:
    """Where it is the op, a kernel must not call it; another of the same last name is another operator."""
    own = {"mine::softmax": 64}
    message = op_callback.judge([{"mine::softmax": 64}], own)
    assert "it runs mine::softmax, and the op itself runs mine::softmax;" in message
    assert op_callback.judge([{"other::softmax": 64}], own) == ""
    assert op_callback.judge([{"mine::softmax": 64}], {"softmax": 64}) == ""
    assert plain("mine::_softmax_") == "mine::_softmax_"
