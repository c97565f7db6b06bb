"""Every in-place op of torch that computes is recorded when no ops are named."""

from __future__ import annotations

import operator

import pytest
import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.ops import qualified_name, resolve
from pytest_cgins.recording.selection import default_ops

VIEWS = "as_strided_ squeeze_ unsqueeze_ swapaxes_ swapdims_ t_ transpose_ detach_ requires_grad_ set_ resize_ resize_as_"
SPARSE = "resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_"
RANDOM = "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_"
COMPARE = "eq_ ge_ greater_ greater_equal_ gt_ le_ less_ less_equal_ lt_ ne_ not_equal_"
LOGICAL = "logical_and_ logical_not_ logical_or_ logical_xor_"
OTHERS = "copy_ fill_ zero_ apply_ map_ map2_ share_memory_"
NOT_COMPUTED = frozenset(f"{VIEWS} {SPARSE} {RANDOM} {COMPARE} {LOGICAL} {OTHERS}".split())
IN_PLACE = sorted(name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_"))
OPERATORS = [
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ior",
    "ixor",
    "ilshift",
    "irshift",
]


def attempts(x: torch.Tensor):
    """Arguments for one op or another."""
    index, row, grid = torch.tensor([0, 2]), torch.full((2, 3), 2, dtype=x.dtype), torch.zeros(3, 3).long()
    square, vector, batch = (torch.full(shape, 2, dtype=x.dtype) for shape in ((3, 3), (3,), (2, 3, 3)))
    yield from [(), (square,), (square, square), (2,), (0,), (0, index, row), (0, index, row, "mean")]
    yield from [(0, grid, square), (0, grid, square, "sum"), (0, index, 2), ((index,), row), (grid, square)]
    yield from [(square > 1, 2), (square > 1, square), (vector, vector), (square, vector), (batch, batch)]
    yield from [(1, 0, 2), (square, 0.5)]


def call(name: str):
    """A call of the op that works: the tensor and the other arguments."""
    for dtype in (torch.float32, torch.int64, torch.float64):
        for x in (torch.full((3, 3), 2, dtype=dtype), torch.full((3,), 2, dtype=dtype), torch.ones(2, 3, 3)):
            for arguments in attempts(x):
                try:
                    getattr(x.clone(), name)(*arguments)
                except (RuntimeError, TypeError, IndexError, ValueError):
                    continue
                return x, arguments
    raise AssertionError(f"no arguments for {name}")


def ops_of(pack) -> set[str]:
    return {trace.call.op for trace in pack.traces}


@pytest.mark.parametrize("name", [name for name in IN_PLACE if name not in NOT_COMPUTED])
def test_an_in_place_op_is_recorded_by_default(recorded, name) -> None:
    x, arguments = call(name)
    assert ops_of(recorded(lambda: getattr(x, name)(*arguments))) == {
        qualified_name(getattr(torch.Tensor, name))
    }


@pytest.mark.parametrize("name", OPERATORS)
def test_an_in_place_operator_is_recorded_by_default(recorded, name) -> None:
    dtype = torch.float32 if name == "itruediv" else torch.int64
    x, y = torch.full((4,), 5, dtype=dtype), torch.full((4,), 2, dtype=dtype)
    assert len(ops_of(recorded(lambda: getattr(operator, name)(x, y)))) == 1


@pytest.mark.parametrize("name", ["zero_", "copy_", "t_", "eq_", "normal_", "requires_grad_"])
def test_an_in_place_op_that_computes_nothing_is_not(recorded, name) -> None:
    x, arguments = call(name)
    with pytest.raises(RecordError, match="no call of a recordable op"):
        recorded(lambda: getattr(x, name)(*arguments))


def test_functions_that_work_in_place_are_recorded_by_default() -> None:
    drawn = {"dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_", "rrelu_"}
    for namespace in (torch, torch.nn.functional):
        names = {name for name in dir(namespace) if name.endswith("_") and not name.startswith("_")}
        for name in names - NOT_COMPUTED - drawn:
            assert getattr(namespace, name) in default_ops(), name


def test_in_place_ops_are_recorded_at_level_dispatch(recorded) -> None:
    x, index = torch.zeros(3, 3), torch.tensor([0, 2])

    def body() -> None:
        x.index_add_(0, index, torch.ones(2, 3))
        x.scatter_(0, index[None], 2.0)
        x[index, index] = torch.ones(2)

    ops = ops_of(recorded(body, level="dispatch"))
    assert {op.split(".")[3] for op in ops} == {"index_add_", "scatter_", "index_put_"}


FUNCTIONS = sorted(
    name for name, func in vars(torch.nn.functional).items() if callable(func) and func in default_ops()
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_are_recorded_unasked_are_ops_by_name(name: str) -> None:
    """What a recording without `ops` takes can be replayed: else its error would cost all that was recorded."""
    func = getattr(torch.nn.functional, name)
    assert resolve(qualified_name(func)) is func
