"""Ops that choose among elements: one NaN is put in where torch treats it alike wherever it lies, and wrong kernels are caught by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_cgins
from pytest_cgins.core.verdict import Probe, Reason
from tests.verify.helpers import normal
from tests.verify.test_probe_inputs import Gate, result

Choice = Callable[[torch.Tensor], list[torch.Tensor]]


def judged(gate: Gate, kernel: Choice | None = None) -> Probe:
    return result(gate.judge(kernel and (lambda tensors: kernel(tensors[0]))), "special_values")


def in_turn(takes: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Choice:
    """The number of each row that is taken in place of the best before, and its position."""

    def kernel(x: torch.Tensor) -> list[torch.Tensor]:
        at = torch.zeros(len(x), dtype=torch.int64)
        for column in range(x.shape[1]):
            at = torch.where(takes(x[:, column], x.gather(1, at[:, None])[:, 0]), column, at)
        return [x.gather(1, at[:, None])[:, 0], at]

    return kernel


def by_halves(x: torch.Tensor) -> list[torch.Tensor]:
    """The greatest of each row and its position, by a tree."""
    at = torch.arange(x.shape[1]).expand(x.shape)
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        later = (x[:, half : 2 * half] > x[:, :half]) | x[:, half : 2 * half].isnan()
        x, at = (
            torch.cat((torch.where(later, one[:, half : 2 * half], one[:, :half]), one[:, 2 * half :]), 1)
            for one in (x, at)
        )
    return [x[:, 0], at[:, 0]]


RIGHT: Mapping[str, Choice] = {
    "a loop, last NaN": in_turn(lambda new, best: (new > best) | new.isnan()),
    "a loop, first NaN": in_turn(lambda new, best: (new > best) | (new.isnan() & ~best.isnan())),
    "a tree": by_halves,
}
WRONG: Mapping[str, Choice] = {
    "false for NaN": in_turn(lambda new, best: new > best),
    "true for NaN": in_turn(lambda new, best: ~(new <= best)),
}


@pytest_cgins.mark
def best(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A user's op that gives positions, of which nobody says what they are."""
    values, at = torch.max(x, -1)
    return values, at


@pytest.mark.parametrize("choice", ["max", "argmax", "flat", "a user's"])
def test_a_greatest_that_drops_nan_is_caught(tmp_path: Path, choice: str) -> None:
    """By values, and by positions alone; whoever lets NaN win passes, in whatever order it compares."""
    runs: Mapping[str, tuple[str, Callable[[], object]]] = {
        "max": ("torch.max", lambda: torch.max(normal(12, 33), -1)),
        "argmax": ("torch.argmax", lambda: torch.argmax(normal(12, 33), -1)),
        "flat": ("torch.argmax", lambda: torch.argmax(normal(12, 33))),
        "a user's": (f"{__name__}.best", lambda: best(normal(12, 33))),
    }
    op, run = runs[choice]
    gate = Gate(tmp_path, run, op)

    def of(kernel: Choice) -> Probe:
        if choice == "flat":
            return judged(gate, lambda x: [kernel(x.reshape(1, -1))[1][0]])
        return judged(gate, (lambda x: kernel(x)[1:]) if choice == "argmax" else kernel)

    assert judged(gate).outcome == "held"
    assert {name: of(kernel).outcome for name, kernel in RIGHT.items()} == dict.fromkeys(RIGHT, "held")
    assert {of(kernel).reason for kernel in WRONG.values()} == {Reason.NAN_PATTERN}


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("min", {"dim": 0}), ("cummax", {"dim": -1}), ("cummin", {"dim": 0}), ("topk", {"k": 5}), ("sort", {}),
        ("sort", {"descending": True}), ("argsort", {}), ("median", {"dim": -1}), ("kthvalue", {"k": 33}),
        ("argmin", {"dim": -1}),
    ],
)  # fmt: skip
def test_nan_comes_where_torch_puts_it(tmp_path: Path, op: str, options: dict[str, Any]) -> None:
    """Of each op; a kernel that takes NaN for a number, as of memory that was masked, is caught."""

    def chosen(x: torch.Tensor) -> list[torch.Tensor]:
        outputs = getattr(torch, op)(x, **options)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)

    gate = Gate(tmp_path, lambda: getattr(torch, op)(normal(12, 33), **options), f"torch.{op}")
    assert judged(gate).outcome == "held"
    assert judged(gate, lambda x: chosen(x.masked_fill(x.isnan(), 0.0))).reason is Reason.NAN_PATTERN


@pytest_cgins.mark
def segment_max(x: torch.Tensor) -> torch.Tensor:
    """A user's op whose name tells of a choice."""
    return x.new_full((3, 33), -torch.inf).scatter_reduce(
        0, (torch.arange(12) % 3)[:, None].expand_as(x), x, "amax"
    )


def test_a_users_choice_without_positions_is_looked_at(tmp_path: Path) -> None:
    """A loop that begins at -inf, and takes what is greater."""
    gate = Gate(tmp_path, lambda: segment_max(normal(12, 33)), f"{__name__}.segment_max")

    def loop(x: torch.Tensor, wins: bool) -> list[torch.Tensor]:
        best = x.new_full((3, 33), -torch.inf)
        for row, numbers in enumerate(x):
            takes = (numbers > best[row % 3]) | (numbers.isnan() & wins)
            best[row % 3] = torch.where(takes, numbers, best[row % 3])
        return [best]

    assert judged(gate, lambda x: loop(x, wins=True)).outcome == "held"
    assert judged(gate, lambda x: loop(x, wins=False)).reason is Reason.NAN_PATTERN


@pytest_cgins.mark
def routed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A user's op that makes NaN of a row, all of whose positions are as good."""
    weights, at = x.softmax(-1).topk(3)
    return weights / weights.sum(-1, keepdim=True), at


def test_positions_of_many_nan_may_be_any(tmp_path: Path) -> None:
    """A softmax of what was chosen before chooses the one NaN; a right kernel's weights are all NaN, and no number."""
    gate = Gate(tmp_path, lambda: routed(normal(12, 33)), f"{__name__}.routed")

    def early(x: torch.Tensor) -> list[torch.Tensor]:
        values, at = x.topk(3)
        return [values.softmax(-1), at]

    assert judged(gate, early).outcome == "held"
    assert judged(gate, lambda x: early(x.nan_to_num(nan=-1e30))).reason is Reason.NAN_PATTERN


@pytest_cgins.mark
def coded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A user's op with codes, none of which is NaN's."""
    scales = x.abs().amax(-1, keepdim=True) / 127
    return (x / scales).round().to(torch.int8), scales


@pytest_cgins.mark
def picked(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a row of NaN the first is the greatest, and without a softmax it is the one NaN."""
    at = x.softmax(-1).argmax(-1)
    return x.gather(-1, at[:, None])[:, 0], at


@pytest_cgins.mark
def nearest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """NaN is the greatest of -x, and not among the least of x."""
    values, at = (-x).topk(3)
    return -values, at


@pytest.mark.parametrize(
    ("run", "op", "why"),
    [
        (lambda: torch.mode(normal(4, 8)), "torch.mode", "several answers"),
        (lambda: torch.frexp(normal(4, 8)), "torch.frexp", "no integer stands for NaN"),
        (lambda: coded(normal(4, 8)), f"{__name__}.coded", "no integer stands for NaN"),
        (lambda: picked(normal(4, 8)), f"{__name__}.picked", "no one answer"),
        (lambda: nearest(normal(4, 8)), f"{__name__}.nearest", "no one answer"),
    ],
)
def test_choices_without_one_answer_are_left_out(
    tmp_path: Path, run: Callable[[], object], op: str, why: str
) -> None:
    """Of whose NaN another right kernel could make something else."""
    left_out = judged(Gate(tmp_path, run, op))
    assert left_out.outcome == "not-run"
    assert why in left_out.message
