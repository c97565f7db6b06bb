"""Hints: given only where undoing the mistake gives the right answer."""

from __future__ import annotations

import pytest
import torch

from tests.verify.helpers import expected_output, expected_set, failed, normal

X, WEIGHT, BIAS = normal(20, 30).double(), normal(30, seed=1).double(), normal(30, seed=2).double()
RIGHT = X * WEIGHT + BIAS


def message(answer: torch.Tensor, right: torch.Tensor = RIGHT, **arguments: torch.Tensor) -> str:
    passed = {name: argument.float() for name, argument in arguments.items()}
    return failed(expected_set(expected_output(right), arguments=passed), answer.float()).message


def test_ignored_bias() -> None:
    """y + bias is right."""
    assert "With `bias` added the answer is right" in message(X * WEIGHT, weight=WEIGHT, bias=BIAS)


def test_ignored_weight() -> None:
    """(y − bias)·weight + bias is right."""
    assert "With `weight` multiplied the answer is right" in message(X + BIAS, weight=WEIGHT, bias=BIAS)


def test_bias_of_channels() -> None:
    """A convolution's bias runs along axis 1."""
    x, bias = normal(2, 3, 4, 5), normal(3, seed=1)
    assert "`bias` added" in message(x, x + bias[:, None, None], bias=bias)


def test_transposed() -> None:
    """The right numbers in the order of the transposed matrix."""
    assert "the right answer transposed" in message(RIGHT.T.reshape(20, 30))


@pytest.mark.parametrize("by", [1, -1])
def test_moved_rows(by: int) -> None:
    """Rows shifted by one, with the direction."""
    assert f"rows moved by {by:+d}" in message(RIGHT.roll(by, 0))


def test_constant_factor() -> None:
    """A factor common to all elements."""
    assert "Every element is 0.5 times what is expected" in message(RIGHT * 0.5)


def test_copy_of_an_input() -> None:
    """The output is an argument."""
    assert "The output is a copy of `x`" in message(X, x=X)


def test_zeros() -> None:
    """Nothing but zeros."""
    assert "Every element is zero" in message(torch.zeros_like(RIGHT))


def test_no_hint_without_evidence() -> None:
    """An error that no suspect explains gets no guess, also if bias and weight are there."""
    text = message(RIGHT + normal(20, 30, seed=9), weight=WEIGHT, bias=BIAS, x=X)
    assert text.endswith(").") or text.rstrip(".").endswith("elements")
    assert "With `" not in text
