"""Random outputs: torch's own draws pass, and what is none of them does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pytest_cgins.core.errors import ConfigError, RandomOp
from pytest_cgins.core.trace import Context
from pytest_cgins.verify.random_outputs import Draws, draw
from tests.verify.helpers import normal
from tests.verify.test_probe_inputs import Gate

ANY = (-math.inf, math.inf)
UNIT = (0.0, 1.0)
DROPOUT = "torch.nn.functional.dropout"
X = normal(64, 128)


def draws_of(op: Callable[[], Tensor], domain: tuple[float, float] = ANY) -> Draws:
    return draw(lambda context: seeded(op, int(context.rng_seed or 0)), Context(), domain)


def seeded(op: Callable[[], Tensor], seed: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return op()


def dropped(x: Tensor, keep: Tensor, p: float) -> Tensor:
    return x * keep / (1 - p)


@pytest.mark.parametrize(
    ("op", "domain"),
    [
        (lambda: functional.dropout(X, 0.1), ANY),
        (lambda: functional.dropout2d(X.reshape(1, 4, 32, 64), 0.02), ANY),
        (lambda: torch.rand(64, 128), UNIT),
        (lambda: torch.randn(3), ANY),
        (lambda: torch.bernoulli(X.sigmoid()), UNIT),
        (lambda: functional.rrelu(X, training=True), ANY),
        (lambda: functional.scaled_dot_product_attention(X, X, X, dropout_p=0.2), ANY),
        (lambda: torch.rand(0, 4), UNIT),
    ],
    ids=["dropout", "few channels", "uniform", "three", "bernoulli", "rrelu", "attention", "empty"],
)
def test_draws_of_torch_pass(op: Callable[[], Tensor], domain: tuple[float, float]) -> None:
    """Whatever their seed, and however rarely they differ."""
    draws = draws_of(op, domain)
    assert [draws.fault(seeded(op, seed)) for seed in range(100, 110)] == [""] * 10


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda: X, "neither of the two values that torch draws"),
        (lambda: X / 0.9, "standard deviations from that of 32 draws"),
        (lambda: dropped(X, torch.rand(64, 128) > 0.3, 0.1), "its magnitude is"),
        (lambda: dropped(X, torch.rand(128) > 0.1, 0.1), "standard deviations from that of 32 draws"),
        (lambda: torch.full_like(X, torch.nan), "8192 of 8192 elements are NaN, and none of torch's"),
    ],
    ids=["nothing dropped", "scaled only", "too many", "one mask for all rows", "unwritten"],
)
def test_wrong_dropouts_are_caught(kernel: Callable[[], Tensor], message: str) -> None:
    """Each of them by what it is wrong in."""
    assert message in draws_of(lambda: functional.dropout(X, 0.1)).fault(seeded(kernel, 7))


def test_numbers_outside_of_the_domain_are_caught() -> None:
    """A domain that is known of the op, or declared."""
    assert "lie outside of [0, 1]" in draws_of(lambda: torch.rand(8, 8), UNIT).fault(torch.full((8, 8), 1.5))


@pytest.mark.exam
def test_dropout_is_gated_and_its_report_says_how(tmp_path: Path) -> None:
    """A kernel with numbers of its own passes; one that drops nothing does not."""
    gate = Gate(tmp_path, lambda: functional.dropout(X, 0.25), DROPOUT)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        found = gate.judge()
    assert found.passed
    assert "output 0 is random: shape, dtype, range" in found.notes[0]
    wrong = gate.judge(lambda tensors: [tensors[0].clone()])
    assert not wrong.passed
    message = next(check.message for check in wrong.checks if not check.passed)
    assert message.startswith("the output is not distributed like torch's on the recorded inputs: ")


@pytest.mark.exam
def test_ops_that_nobody_knows_are_not_gated_until_they_are_declared(tmp_path: Path) -> None:
    """`semantics: {outputs: …}` says which outputs are random; the error says so."""
    op = "torch.nn.functional.fractional_max_pool2d"
    call: Callable[[], object] = lambda: functional.fractional_max_pool2d(  # noqa: E731
        normal(2, 3, 16, 16), 2, output_size=8
    )
    with pytest.raises(RandomOp, match=r"semantics: \{outputs: \{0: random\}\}"):
        Gate(tmp_path / "unknown", call, op)
    gate = Gate(tmp_path / "declared", call, op, semantics={"outputs": {0: "random"}})
    assert gate.judge(
        lambda t: [seeded(lambda: functional.fractional_max_pool2d(t[0], 2, output_size=8), 5)]
    ).passed


def test_argument_that_the_recorded_call_left_alone_may_be_changed(tmp_path: Path) -> None:
    """relu_ of positive numbers changes nothing; on fresh inputs it must, and the kernel is held to it."""
    gate = Gate(tmp_path, lambda: torch.relu_(normal(8, 32).abs()), "torch.relu_")
    kept = gate.judge(lambda tensors: [tensors[0].relu(), tensors[0]])
    changed = gate.judge(lambda tensors: [tensors[0].relu_(), tensors[0]])
    assert changed.passed
    assert not kept.passed


def test_output_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """A declaration of output 1 of an op that has one output."""
    with pytest.raises(ConfigError, match=r"output 1 of .*dropout is random, and it has 1\n→ count from 0"):
        Gate(tmp_path, lambda: functional.dropout(X, 0.25), DROPOUT, semantics={"outputs": {1: "random"}})
