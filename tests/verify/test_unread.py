"""What an op reads of its arguments, as its gradient and its answers beside other content tell."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional

from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Context
from pytest_cgins.packs.ops import trust
from pytest_cgins.verify.unread import ReadOp, fill
from tests.verify.helpers import call_of, normal

NOT_FINITE, HUGE = (torch.nan, torch.inf, -torch.inf), (2.0**30, -(2.0**30))


def first_of_two(x: torch.Tensor) -> torch.Tensor:
    """Softmax of one number, which has no slope, and the rows from the third on."""
    return x[:2, :1].softmax(-1) + x[2:3].sum()


def padded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products of the first four rows; those behind are 0."""
    return torch.cat([x[:4] @ y.T, torch.zeros(2, 6, dtype=x.dtype)])


trust(f"{__name__}.first_of_two")
trust(f"{__name__}.padded")


def read_op(op: str, function: Any, *args: Any, seen: Any = lambda output: output, **kwargs: Any) -> ReadOp:
    """The op of a call."""
    call, tensors = call_of(op, function, *args, **kwargs)
    return ReadOp(call=call, inputs=lay_out(tensors), context=Context(), mutated=(), seen=seen)


def test_rows_of_a_table_that_nobody_asks_for_are_not_read() -> None:
    """Neither NaN there nor a huge number changes the answer."""
    op = read_op("torch.nn.functional.embedding", functional.embedding, torch.tensor([4, 1]), normal(6, 5))
    unread = torch.tensor([True, False, True, True, False, True])
    for content in (NOT_FINITE, HUGE):
        (rows,) = op.unread(op.flat(), content).values()
        assert torch.equal(rows, unread)


def test_what_has_no_slope_may_be_read() -> None:
    """NaN in the number of a softmax comes out, and a huge one does not; the row behind is not read, and that is found by halves."""
    op = read_op(f"{__name__}.first_of_two", first_of_two, normal(5, 4))
    flat = op.flat()
    assert flat[0].tolist() == [True, True, False, True, True]
    assert op.unread(flat, NOT_FINITE)[0].tolist() == [False, False, False, True, True]
    assert op.unread(flat, HUGE)[0].tolist() == [True, True, False, True, True]


def test_a_part_of_the_outputs_reads_less() -> None:
    """With causality the first half of the queries does not read later keys: huge numbers there change nothing."""
    q = normal(1, 2, 8, 4)
    op = read_op(
        "torch.nn.functional.scaled_dot_product_attention", functional.scaled_dot_product_attention,
        q, q + 1, q - 1, is_causal=True, seen=partial(torch.Tensor.narrow, dim=-2, start=0, length=4),
    )  # fmt: skip
    unread = op.unread(op.flat(), HUGE)
    later = torch.arange(8).expand(1, 2, 8) >= 4
    assert torch.equal(unread[1], later)
    assert torch.equal(unread[2], later)


def test_a_query_is_read_though_it_sees_one_key_alone() -> None:
    """Flash attention makes NaN of a huge one, as exp2 of a multiply-add; a key whose weight vanishes at large numbers is read, too."""
    q = 40 * normal(1, 2, 8, 4)
    op = read_op(
        "torch.nn.functional.scaled_dot_product_attention", functional.scaled_dot_product_attention,
        q, q + 1, q - 1, is_causal=True,
    )  # fmt: skip
    assert op.flat() == {}


def test_a_query_of_padding_is_not_read() -> None:
    """Its output row is 0 whatever the keys are: what it holds must not reach the others."""
    op = read_op(f"{__name__}.padded", padded, normal(6, 4), normal(6, 4))
    assert op.flat()[0].tolist() == [False] * 4 + [True] * 2


def test_an_op_that_reads_all_has_no_such_rows() -> None:
    """A row of a ReLU counts where any of its numbers is positive."""
    x = normal(6, 40)
    assert read_op("torch.nn.functional.relu", functional.relu, x).flat() == {}
    x[2] = -x[2].abs()
    op = read_op("torch.nn.functional.relu", functional.relu, x)
    assert op.flat()[0].tolist() == [False, False, True, False, False, False]
    assert not op.unread(op.flat(), HUGE)


def test_what_has_no_gradient_is_an_error() -> None:
    """Whoever asks leaves such ops out."""
    with pytest.raises(RuntimeError):
        read_op("torch.argmax", torch.argmax, normal(3, 4), -1).flat()


@pytest.mark.parametrize("shape", [(6,), (6, 3)])
def test_rows_are_filled_in_turns(shape: tuple[int, ...]) -> None:
    """Each row holds one number, the next row the next one."""
    tensor, rows = torch.zeros(shape), torch.tensor([True, False, True, True, False, False])
    fill(tensor, rows, (1.0, 2.0))
    assert tensor.reshape(6, -1)[:, 0].tolist() == [1.0, 0.0, 2.0, 1.0, 0.0, 0.0]
