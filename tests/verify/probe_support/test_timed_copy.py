"""Copies that a kernel is timed on, and the exchange of their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.tensors import Kept
from pytest_cgins.run.kernels import KernelCache
from pytest_cgins.verify.messages import PackedInputs, read
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy, exchange
from tests.run.relu import relu_set, zoo_kernel

FIRST, SECOND = torch.linspace(-1, 1, 6), torch.linspace(2, -2, 6)


def content(tensor: torch.Tensor, name: str = "0", mutated: tuple[int, ...] = ()) -> Content:
    """A set of inputs."""
    one, buffer = relu_set(tensor, name=name, mutated=mutated)
    return Content(read(PackedInputs, one), Kept(one["tensors"], buffer, "cpu"))


def kernel(function: str) -> LoadedKernel:
    """One of `zoo.py`."""
    return KernelCache().load(read(CompiledKernel, zoo_kernel(function)))


@pytest.fixture
def two() -> tuple[list[TimedCopy], Rotating]:
    """Four copies that hold two sets in turn, and calls of them."""
    sets = [content(FIRST, "0"), content(SECOND, "1")]
    copies = [TimedCopy(kernel("quiet_relu"), sets[index % 2], "cpu") for index in range(4)]
    return copies, Rotating([copy.run for copy in copies])


def result_of(results: list[Any], index: int) -> torch.Tensor:
    (output,) = results[index]
    assert isinstance(output, torch.Tensor)
    return output


def test_a_content_is_what_was_sent() -> None:
    """With the numbers on memory of its own each time."""
    made = content(FIRST, "7", (0,))
    assert (made.name, made.mutated, made.call.op) == ("7", (0,), "torch.nn.functional.relu")
    assert [meta.shape for meta in made.outputs] == [(6,)]
    (one,), (other,) = made.kept.unpack(), made.kept.unpack()
    one.zero_()
    assert torch.equal(other, FIRST)


def test_each_call_runs_on_its_own_copy(two: tuple[list[TimedCopy], Rotating]) -> None:
    """And its result is kept until it runs again."""
    _, rotating = two
    assert rotating.results == [None] * 4
    rotating(1)
    rotating(2)
    assert rotating.results[0] is rotating.results[3] is None
    assert torch.equal(result_of(rotating.results, 1), SECOND.relu())
    assert torch.equal(result_of(rotating.results, 2), FIRST.relu())


def test_a_copy_takes_other_numbers_where_it_lies(two: tuple[list[TimedCopy], Rotating]) -> None:
    """Addresses stay, since a graph has captured them."""
    copies, _ = two
    address = copies[0].inputs[0].data_ptr()
    copies[0].take(copies[1].content)
    assert copies[0].name == "1"
    assert copies[0].inputs[0].data_ptr() == address
    assert torch.equal(copies[0].inputs[0], SECOND)


def test_once_more_begins_with_its_own_numbers() -> None:
    """What the op changes in place is restored before, and handed over after the outputs."""
    copy = TimedCopy(kernel("in_place"), content(FIRST, mutated=(0,)), "cpu")
    assert copy.mutates
    copy.run()
    copy.inputs[0].fill_(5.0)
    output, changed = copy.once_more()
    assert torch.equal(output, FIRST.relu())
    assert torch.equal(changed, FIRST.relu())


@pytest.mark.parametrize("wrapped", [lambda one: one, lambda one: (one,), lambda one: {"out": [one]}])
def test_outputs_are_those_of_whatever_a_call_returned(wrapped: Callable[[torch.Tensor], object]) -> None:
    """A tensor by itself is one output, not one a row: at four million rows that took minutes."""
    copy = TimedCopy(kernel("in_place"), content(FIRST, mutated=(0,)), "cpu")
    copy.left = wrapped(SECOND)
    for found in (copy.outputs_of(copy.left), copy.answer_left()):
        assert [one.shape for one in found] == [SECOND.shape, FIRST.shape]
        assert torch.equal(found[0], SECOND)


def test_two_kernels_share_a_copy() -> None:
    """Where tensors lie makes a difference, which is none of the kernels'."""
    copy = TimedCopy(kernel("quiet_relu"), content(FIRST), "cpu")
    beside = copy.bind_beside(kernel("in_place"))
    beside()
    assert torch.equal(copy.inputs[0], FIRST.relu())


@pytest.mark.parametrize(("captured", "distinct"), [(False, 4), (True, 4), (True, 2)])
def test_copies_exchange_numbers(
    two: tuple[list[TimedCopy], Rotating], captured: bool, distinct: int
) -> None:
    """Each has the other set's; results stay only where a captured call will write to them again."""
    copies, rotating = two
    for index in range(4):
        rotating(index)
    exchange(copies, rotating.results, captured=captured, distinct_calls=distinct)
    assert [copy.name for copy in copies] == ["1", "0", "1", "0"]
    for copy, numbers in zip(copies, (SECOND, FIRST, SECOND, FIRST), strict=True):
        assert torch.equal(copy.inputs[0], numbers)
    stays = [captured and index < distinct for index in range(4)]
    assert [result is not None for result in rotating.results] == stays
    if captured:
        assert torch.equal(result_of(rotating.results, 0), FIRST.relu())


def test_one_set_is_poisoned_where_it_stays() -> None:
    """Its right answers would look right after the exchange: results of captured calls become NaN."""
    one = content(FIRST)
    copies = [TimedCopy(kernel("quiet_relu"), one, "cpu") for _ in range(2)]
    rotating = Rotating([copy.run for copy in copies])
    rotating(0)
    rotating(1)
    exchange(copies, rotating.results, captured=True, distinct_calls=1)
    assert result_of(rotating.results, 0).isnan().all()
    assert rotating.results[1] is None
    assert torch.equal(copies[0].inputs[0], FIRST)


def test_one_set_is_restored() -> None:
    """A base that ran on the same tensors may have overwritten them."""
    copies = [TimedCopy(kernel("quiet_relu"), content(FIRST), "cpu")]
    copies[0].inputs[0].fill_(7.0)
    exchange(copies, [None], captured=False, distinct_calls=1)
    assert torch.equal(copies[0].inputs[0], FIRST)


def test_poison_spares_results_that_are_inputs() -> None:
    """A kernel that returns its input has no output that could be poisoned."""
    copy = TimedCopy(kernel("in_place"), content(FIRST), "cpu")
    copy.poison([copy.inputs[0][1:]])
    assert torch.equal(copy.inputs[0], FIRST)
    result = torch.ones(3)
    copy.poison([result])
    assert result.isnan().all()
