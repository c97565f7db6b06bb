"""Ops that draw random numbers: their seed is recorded, and they replay bitwise under it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from pytest_cgins.core.errors import RecordError

CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "torch.nn.functional.scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(
        x, x, x, dropout_p=0.5
    ),
    "torch.Tensor.bernoulli_": lambda x: x.bernoulli_(0.5),
    "torch.Tensor.uniform_": lambda x: x.uniform_(),
    "torch.bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "torch.multinomial": lambda x: torch.multinomial(x.flatten().exp(), 5),
    "torch.rand_like": torch.rand_like,
    "torch.randn_like": torch.randn_like,
    "torch.randint_like": lambda x: torch.randint_like(x, 9),
    "torch.normal": lambda x: torch.normal(x, 2.0),
    "torch.nn.functional.rrelu": lambda x: F.rrelu(x, training=True),
    "torch.nn.Dropout": nn.Dropout(0.5),
    "torch.ops.aten.bernoulli_.float": lambda x: x.bernoulli_(0.5),
}


@pytest.mark.parametrize("tier", ["recipe", "full"])
@pytest.mark.parametrize("op", CALLS)
def test_ops_that_draw_replay_bitwise(recorded, op, tier) -> None:
    """Whatever the level and the form of the op; the model draws what it would have drawn anyway."""
    x = torch.randn(1, 2, 8, 4)
    torch.manual_seed(5)
    CALLS[op](x.clone())
    expected = torch.rand(3)
    torch.manual_seed(5)
    seen = []
    (trace,) = recorded(
        lambda: seen.extend((CALLS[op](x.clone()), torch.rand(3))),
        ops=[op],
        tier=tier,
        level="dispatch" if "aten" in op else "function",
    ).traces
    assert torch.equal(seen[1], expected)
    assert trace.context.rng_seed is not None
    assert trace.replay == "bitwise"


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("torch.empty_like", torch.empty_like),
        ("torch.Tensor.new_empty", lambda x: x.new_empty(3)),
        ("torch.Tensor.resize_", lambda x: x.resize_(9)),
    ],
)
def test_memory_that_nothing_was_written_to_is_refused(recorded, op, call) -> None:
    """Its content would be gold, and differ in every run."""
    with pytest.raises(RecordError) as caught:
        recorded(lambda: call(torch.ones(4)), ops=[op])
    assert caught.value.what == (
        f"{op} cannot be recorded: its result is uninitialised memory, so there is no gold"
    )
    assert caught.value.remedy == "take it out of ops=[…], and record the ops that fill its result"
