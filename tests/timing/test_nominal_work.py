"""What calls are credited with: bytes once, and operations as torch's own counter has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.values import encode
from pytest_cgins.timing import least_work
from pytest_cgins.timing.nominal_work import NominalWork, nominal


def described(
    op: str, func: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[OpCall, tuple[TensorMeta, ...]]:
    tensors: list[torch.Tensor] = []
    arguments = tuple(
        Argument(name=one.name, value=encode(one.value, tensors), passed=one.passed)
        for one in bind(func, args, kwargs)
    )
    return OpCall(op=op, arguments=arguments), tuple(lay_out(tensors).metas)


def of(op: str, *args: Any, mutated: tuple[int, ...] = (), **kwargs: Any) -> NominalWork:
    """The work of a call that is made."""
    func: Any = torch
    for part in op.removeprefix("torch.").split("."):
        func = getattr(func, part)
    call, metas = described(op, func, *args, **kwargs)
    result = func(*args, **kwargs)
    results = [one for one in (result if isinstance(result, tuple) else [result]) if one is not None]
    return nominal(call, metas, lay_out(results).metas, mutated)


def counted(func: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Operations by torch's own counter, which leaves sums and biases out."""
    with FlopCounterMode(display=False) as counter:
        func(*args, **kwargs)
    return int(counter.get_total_flops())


def r(*shape: int, **kwargs: Any) -> torch.Tensor:
    return torch.randn(*shape, **kwargs)


E4M3 = r(16, 32).to(torch.float8_e4m3fn)
PRODUCTS: list[tuple[str, tuple[Any, ...], dict[str, Any], int]] = [
    ("torch.mm", (r(3, 4), r(4, 5)), {}, 0),
    ("torch.bmm", (r(2, 3, 4), r(2, 4, 5)), {}, 0),
    ("torch.matmul", (r(2, 3, 4), r(4, 5)), {}, 0),
    ("torch.ops.aten.mm.default", (r(3, 4), r(4, 5)), {}, 0),
    ("torch._scaled_mm", (E4M3, E4M3.t(), torch.tensor(0.5), torch.tensor(0.25)), {}, 0),
    ("torch.addmm", (r(3, 5), r(3, 4), r(4, 5)), {}, 15),
    ("torch.baddbmm", (r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)), {}, 30),
    ("torch.nn.functional.linear", (r(7, 4), r(5, 4)), {}, 0),
    ("torch.nn.functional.linear", (r(7, 4), r(5, 4), r(5)), {}, 35),
    ("torch.einsum", ("bik,bkj->bij", r(2, 3, 4), r(2, 4, 5)), {}, 0),
    ("torch.nn.functional.conv1d", (r(2, 4, 9), r(6, 4, 3)), {"stride": 2}, 0),
    ("torch.nn.functional.conv2d", (r(2, 4, 9, 8), r(6, 2, 3, 3)), {"groups": 2, "padding": 1}, 0),
    ("torch.nn.functional.conv3d", (r(1, 2, 5, 5, 5), r(3, 2, 2, 2, 2)), {}, 0),
    ("torch.nn.functional.conv_transpose2d", (r(2, 4, 5, 5), r(4, 3, 3, 3)), {"stride": 2}, 0),
    ("torch.nn.functional.conv_transpose1d", (r(2, 4, 5), r(4, 3, 3)), {}, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "added"), PRODUCTS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_products_are_counted_as_torch_counts_them(
    op: str, args: tuple[Any, ...], kwargs: dict[str, Any], added: int
) -> None:
    """Products of matrices and convolutions have the operations of torch's counter, and one an element for a sum."""
    func: Any = torch
    for part in op.removeprefix("torch.").split("."):
        func = getattr(func, part)
    assert of(op, *args, **kwargs).flops == counted(func, *args, **kwargs) + added > 0


def test_attention() -> None:
    """Both products are counted as by torch, of a causal mask the part that it leaves."""
    q, k, v = r(2, 3, 8, 4), r(2, 3, 8, 4), r(2, 3, 8, 6)
    op = "torch.nn.functional.scaled_dot_product_attention"
    whole = of(op, q, k, v)
    assert whole.flops == 2 * 2 * 3 * 8 * 8 * (4 + 6)
    assert of(op, q, k, v, is_causal=True).flops == whole.flops * 36 // 64
    assert whole.nbytes == 4 * (q.numel() + k.numel() + v.numel() + 2 * 3 * 8 * 6)


@pytest.mark.parametrize(
    ("wanted", "products", "elements"),
    [("input,weight", 2, 0), ("input,weight,bias", 2, 1), ("weight", 1, 0), ("bias", 0, 1)],
)
def test_backward_of_a_product(wanted: str, products: int, elements: int) -> None:
    """The gradient of a factor takes the forward's product again, that of a bias a sum."""
    x, weight, bias, gradient = r(7, 4), r(5, 4), r(5), r(7, 5)
    call, metas = described("", functional.linear, x, weight, bias)
    leaf = Argument(name="grad_output", value=Value(kind="tensor", value=3), passed="positional")
    call = OpCall(op=f"torch.nn.functional.linear@backward({wanted})", arguments=(leaf, *call.arguments))
    found = nominal(call, (*metas, *lay_out([gradient]).metas), metas[: len(wanted.split(","))])
    assert found.flops == products * 2 * 7 * 4 * 5 + elements * 35


def test_backward_of_attention_is_five_products() -> None:
    """Scores are computed again: five products for the forward's two."""
    q = r(1, 2, 8, 4)
    call, metas = described("", functional.scaled_dot_product_attention, q, q.clone(), q.clone())
    leaf = Argument(name="grad_output", value=Value(kind="tensor", value=0), passed="positional")
    call = OpCall(
        op="torch.nn.functional.scaled_dot_product_attention@backward(query,key,value)",
        arguments=(leaf, *call.arguments),
    )
    assert nominal(call, metas, metas).flops == 2.5 * 2 * 2 * 8 * 8 * 8


@pytest.mark.parametrize(
    ("op", "args", "flops"),
    [
        ("torch.nn.functional.relu", (r(3, 4),), 12),
        ("torch.add", (r(3, 4), r(4)), 12),
        ("torch.nn.functional.gelu", (r(3, 4),), 60),
        ("torch.ops.aten.gelu.default", (r(3, 4),), 60),
        ("torch.softmax", (r(3, 4), -1), 60),
        ("torch.sum", (r(3, 4),), 12),
        ("torch.nn.functional.layer_norm", (r(3, 4), (4,)), 60),
        ("torch.nn.functional.layer_norm", (r(3, 4), (4,), r(4), r(4)), 84),
        ("torch.nn.functional.batch_norm", (r(3, 4), r(4), torch.ones(4)), 24),
        ("torch.nn.functional.mse_loss", (r(3, 4), r(3, 4)), 36),
        ("torch.cat", ([r(3, 4), r(3, 4)],), 0),
        ("torch.fft.fft", (r(8),), 0),
    ],
)
def test_other_ops_count_by_element(op: str, args: tuple[Any, ...], flops: int) -> None:
    """Elementwise ops, reductions and norms have a number an element; of what nobody knows there is 0."""
    assert of(op, *args).flops == flops


def test_unknown_ops_have_bytes_alone() -> None:
    """An op of the user's own, whatever its name is, is known by its tensors only."""
    call, metas = described("", torch.mm, r(3, 4), r(4, 5))
    call = OpCall(op="models.blocks.matmul", arguments=call.arguments)
    assert nominal(call, metas, lay_out([r(3, 5)]).metas) == NominalWork(4 * (12 + 20 + 15), 0)


def test_bytes_are_counted_once() -> None:
    """Expanded tensors count once, the same tensor twice counts once, integers by their own size."""
    row = r(4)
    assert of("torch.add", row.expand(1000, 4), row.expand(1000, 4)).nbytes == 16 + 16000
    x = r(6, 6)
    assert of("torch.mul", x, x).nbytes == 2 * 144
    assert of("torch.neg", torch.ones(8, dtype=torch.int16)).nbytes == 32
    assert of("torch.cat", [r(3, 4), r(5, 4)]).nbytes == 2 * 4 * 32


@pytest.mark.parametrize(
    ("op", "args", "nbytes"),
    [
        ("torch.nn.functional.embedding", (torch.tensor([1, 2, 2]), r(1000, 8)), 24 + 2 * 96),
        ("torch.nn.functional.embedding", (torch.zeros(50, dtype=torch.int64), r(2, 8)), 400 + 64 + 1600),
        ("torch.nn.functional.embedding_bag", (torch.tensor([[1, 2, 2]]), r(1000, 8)), 24 + 96 + 32),
        ("torch.gather", (r(1000, 8), 0, torch.zeros(2, 8, dtype=torch.int64)), 128 + 64 + 64),
        ("torch.index_select", (r(1000, 8), 0, torch.tensor([3, 4])), 16 + 64 + 64),
        ("torch.index_add", (r(1000, 8), 0, torch.tensor([3, 4]), r(2, 8)), 2 * 32000 + 16 + 64),
    ],
)
def test_tables_count_by_what_is_taken(op: str, args: tuple[Any, ...], nbytes: int) -> None:
    """Of a table, as much is read as is looked up, at most all of it."""
    assert of(op, *args).nbytes == nbytes


@pytest.mark.parametrize(
    ("op", "args", "nbytes"),
    [
        ("torch.relu_", (r(10),), 80),
        ("torch.Tensor.add_", (r(10), r(10)), 120),
        ("torch.Tensor.copy_", (r(10), r(10)), 80),
        ("torch.Tensor.zero_", (r(10),), 40),
        ("torch.Tensor.index_copy_", (r(1000, 8), 0, torch.tensor([3, 4]), r(2, 8)), 16 + 64 + 64),
        ("torch.Tensor.index_add_", (r(1000, 8), 0, torch.tensor([3, 4]), r(2, 8)), 16 + 64 + 128),
    ],
)
def test_changed_tensors(op: str, args: tuple[Any, ...], nbytes: int) -> None:
    """What a call changes is read and written, or only written where the op does not look at it; returned, it counts once."""
    assert of(op, *args, mutated=(0,)).nbytes == nbytes


def test_out_is_not_read() -> None:
    """`out=` is written only."""
    assert of("torch.neg", r(10), out=r(10), mutated=(1,)).nbytes == 80


def test_gradients_of_an_embedding_do_not_read_it() -> None:
    """Its backward reads indices and gradients, and writes all of the table's gradient."""
    table, index, gradient = r(100, 8), torch.tensor([1, 2]), r(2, 8)
    call, metas = described("", functional.embedding, index, table)
    leaf = Argument(name="grad_output", value=Value(kind="tensor", value=2), passed="positional")
    call = OpCall(op="torch.nn.functional.embedding@backward(weight)", arguments=(leaf, *call.arguments))
    found = nominal(call, (*metas, *lay_out([gradient]).metas), lay_out([table]).metas)
    assert found.nbytes == 16 + 64 + 3200


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from(["relu", "mm", "sum"]),
)
def test_no_less_than_the_least(n: int, k: int, m: int, expanded: bool, word: str) -> None:
    """What a call is credited with is never below what no kernel can do without, of empty tensors too."""
    x = r(1, k).expand(n, k) if expanded else r(n, k)
    args = (x, r(k, m)) if word == "mm" else (x,)
    call, metas = described(f"torch.{word}", getattr(torch, word), *args)
    outputs = lay_out([getattr(torch, word)(*args)]).metas
    found, least = nominal(call, metas, outputs), least_work.least(call, metas, outputs)
    assert found.nbytes >= least.nbytes
    assert found.flops >= least.flops


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["linear", "conv2d", "embedding", "einsum", "scaled_dot_product_attention", "addmm", "batch_norm",
                     "index_add_", "convolution", "layer_norm@backward(input)", "linear@backward(input,weight)"]),
    st.lists(st.tuples(st.sampled_from(["input", "weight", "bias", "out", "self.weight", "grad_output", "index"]),
                       st.integers(0, 4)), max_size=5),
    st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4),
    st.lists(st.integers(-1, 5), max_size=2),
)  # fmt: skip
def test_any_call_has_some_work(
    word: str, arguments: list[tuple[str, int]], shapes: list[list[int]], mutated: list[int]
) -> None:
    """Whatever a manifest holds under a known op's name, there is an answer, and it is not negative."""
    metas = [
        TensorMeta(dtype="float32", shape=tuple(shape), stride=(1,) * len(shape), offset=0, storage=number)
        for number, shape in enumerate(shapes)
    ]
    call = OpCall(
        op=f"torch.{word}",
        arguments=tuple(
            Argument(name=name, value=Value(kind="tensor", value=index), passed="keyword")
            for name, index in arguments
        ),
    )
    found = nominal(call, metas, metas[:2], mutated)
    assert found.nbytes >= 0
    assert found.flops >= 0
