"""Which outputs are judged in steps of a grid, and how many may be off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Context
from pytest_cgins.verify.quantization import Grid, KeepExact, grids, steps
from pytest_cgins.verify.reference import answers
from tests.verify.helpers import normal

E4M3 = torch.float8_e4m3fn
HALF = torch.bfloat16


def grid_of(op: Callable[[Tensor], Tensor], x: Tensor, monkeypatch: pytest.MonkeyPatch) -> Grid | None:
    """What is known of the output of an op of one tensor."""
    from pytest_cgins.core.trace import OpCall
    from pytest_cgins.verify import reference

    monkeypatch.setattr(reference, "invoke", lambda _call, tensors: op(*tensors))
    call, context, layout = OpCall(op="ops.op", arguments=()), Context(default_dtype="float32"), lay_out([x])
    known = answers(call, layout, context, "cpu")
    return grids(call, layout, context, "cpu", known, lambda _answer: None).get(0)


def fault(grid: Grid | None, answer: Tensor) -> str:
    """What is said of an answer; "" if it is right."""
    assert grid is not None
    found = grid.fault(answer.reshape(-1), None, tuple(answer.shape))
    return "" if found is None else found.message


def e4m3(x: Tensor) -> Tensor:
    return (x.float() / 0.003).clamp(-448, 448).to(E4M3)


def filled(x: Tensor) -> Tensor:
    q = torch.empty_like(x, dtype=E4M3)
    q.copy_((x / 0.003).clamp(-448, 448))
    return q


def power_of_two(x: Tensor) -> Tensor:
    scale = torch.exp2(torch.floor(torch.log2(x.abs().amax(-1, keepdim=True) / 448)))
    return (x / scale).clamp(-448, 448).to(E4M3)


def int8(x: Tensor, rounding: Callable[[Tensor], Tensor] = torch.round) -> Tensor:
    return rounding(x / 0.02).clamp(-128, 127).to(torch.int8)


def rounded_in_place(x: Tensor) -> Tensor:
    return (x / 0.02).round_().add_(3).clamp_(-128, 127).reshape(-1).reshape(x.shape).to(torch.int8)


@pytest.mark.parametrize(
    "op",
    [e4m3, filled, power_of_two, int8, rounded_in_place]
    + [partial(int8, rounding=one) for one in (torch.trunc, torch.floor, torch.ceil)],
)
def test_quantised_outputs_are_known(op: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """However the op rounds: torch's own answer is right, and one step more in a hundredth of its elements is not."""
    x = normal(20, 100)
    grid, own = grid_of(op, x, monkeypatch), op(x)
    assert fault(grid, own) == ""
    moved = own.clone().reshape(-1)
    inner = (steps(moved).abs() < 100).nonzero().reshape(-1)[:20]
    codes = moved.view(torch.uint8)
    codes[inner] = torch.where(codes[inner] & 127 < 100, codes[inner] + 1, codes[inner] - 1)
    assert "cannot be what the exact value rounds to" in fault(grid, moved.reshape(own.shape))


@pytest.mark.parametrize(
    "op",
    [
        lambda x: (x > 0).to(torch.int8),
        lambda x: x.argmax(-1).to(torch.uint8),
        lambda x: int8(x).view(torch.uint8) & 15,
        lambda x: (torch.round(x / 0.3).clamp(-8, 7).to(torch.int8) & 15) | (int8(x) << 4),
        lambda x: (x / 0.0001).to(torch.int32).to(torch.int8),
    ],
    ids=["a comparison", "positions", "codes", "nibbles", "wrapped"],
)
def test_other_outputs_of_eight_bits_are_compared_as_they_are(
    op: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits that were put together are no numbers, and one step of them is no rounding."""
    assert grid_of(op, normal(20, 100), monkeypatch) is None


def test_signs_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies on the grid before it is rounded is far from every boundary."""
    x = normal(20, 100)
    grid = grid_of(lambda x: torch.sign(x).to(torch.int8), x, monkeypatch)
    assert fault(grid, torch.sign(x).to(torch.int8)) == ""
    assert "1 of 2000 elements cannot be" in fault(
        grid, torch.sign(x.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(0.0))).to(torch.int8)
    )


def test_few_elements_may_be_off_where_the_op_rounds_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 before float8: a fused kernel that skips it is right; one that cuts off is within a step everywhere, and wrong."""

    def op(x: Tensor) -> Tensor:
        return (torch.exp(x.float()).to(HALF).float() * 20).clamp(-448, 448).to(E4M3)

    def fused(x: Tensor) -> Tensor:
        return (torch.exp(x.float()) * 20).clamp(-448, 448).to(E4M3)

    x = normal(40, 100, dtype=HALF)
    grid, own = grid_of(op, x, monkeypatch), fused(x)
    assert own.view(torch.uint8).ne(op(x).view(torch.uint8)).sum() > 20
    assert fault(grid, own) == ""
    exact = torch.exp(x.double()) * 20
    codes = own.view(torch.uint8)
    cut = torch.where(own.double() > exact, codes - 1, codes).view(E4M3)
    assert "off by a step of the grid" in fault(grid, cut)


@pytest.mark.parametrize("dtype", [E4M3, torch.float8_e5m2])
def test_steps_count_along_the_grid(dtype: torch.dtype) -> None:
    """Neighbours differ by one, across zero too."""
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    codes = codes[codes.float().isfinite()]
    order = codes.float().argsort(stable=True)
    differences = steps(codes)[order].diff()
    assert set(differences.tolist()) == {0, 1}
    assert int((differences == 0).sum()) == 1  # both zeros


def test_without_a_dtype_other_casts_are_left() -> None:
    """An op in bf16 stays in bf16."""
    with KeepExact(None):
        assert torch.ones(2).to(HALF).dtype == HALF
        assert torch.ones(2).to(HALF).to(E4M3).dtype == HALF
