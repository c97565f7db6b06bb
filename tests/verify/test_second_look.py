"""A second look at answers of which a few elements are a little beyond the tolerance."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Context
from pytest_cgins.packs.ops import trust
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.reference import answers, other_errors
from pytest_cgins.verify.second_look import widened
from tests.verify.helpers import DERIVED, call_of, expected_output

OP = f"{__name__}.less_itself"
OF_SIXTY_FOUR = torch.full((64,), 512.0)


def less_itself(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`y`, as near as rounding to the size of `x` lets it be: whatever the inputs, most of it cancels."""
    return (x + y) - x


def input_set(x: torch.Tensor, y: torch.Tensor) -> InputSet:
    trust(OP)
    call, tensors = call_of(OP, less_itself, x, y)
    expected = ExpectedSet(name="fresh", outputs=(expected_output(y.double(), x.dtype),), arguments={})
    return InputSet(
        device="cpu", layout=lay_out(tensors), outputs=(), mutated=(), expected=expected, call=call,
        context=Context(default_dtype="float32"),
    )  # fmt: skip


def is_right(one: InputSet, *got: torch.Tensor) -> bool:
    checks = compare(one.expected, got, DERIVED)
    wider = widened(one, checks)
    return all(check.passed for check in (checks if wider is None else compare(wider, got, DERIVED)))


def test_torch_is_exact_by_luck() -> None:
    """Neither its error in fp32 nor inputs that are moved tell what a sum to the size of x may err; other inputs do."""
    one = input_set(OF_SIXTY_FOUR, torch.full((64,), 0.5))
    told = answers(one.call, one.layout, one.context, "cpu")
    assert bool((told.answer32[0] == told.reference[0]).all())
    assert told.perturbed is not None
    assert float((told.perturbed[0] - told.reference[0]).abs().max()) < 1e-7
    (errors,) = other_errors(one.call, one.layout, one.context, "cpu", ())
    assert float(errors.max()) == pytest.approx(512 * 2.0**-24, rel=0.5)


@pytest.mark.parametrize(
    ("off", "elements", "right"),
    [
        (0.0, 1, True),
        (7e-6, 1, True),  # 3.7 times what is allowed
        (7e-6, 2, False),  # of 64, which is more than a few
        (0.1, 1, False),
    ],
)
def test_few_elements_and_little(off: float, elements: int, right: bool) -> None:
    one = input_set(OF_SIXTY_FOUR, torch.full((64,), 0.5))
    got = torch.full((64,), 0.5)
    got[:elements] += off
    assert is_right(one, got) == right
    assert all(check.passed for check in compare(one.expected, [got], DERIVED)) == (off == 0.0)


def test_a_well_conditioned_op_is_held_to_its_tolerance() -> None:
    """Where torch errs as little on other inputs."""
    one = input_set(torch.full((64,), 2.0**-20), torch.full((64,), 0.5))
    got = torch.full((64,), 0.5)
    got[0] += 7e-6
    assert not is_right(one, got)


def test_an_op_may_refuse_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the first look stands, and nothing is raised."""
    one = input_set(OF_SIXTY_FOUR, torch.full((64,), 0.5))
    monkeypatch.setattr(
        f"{__name__}.less_itself",
        lambda x, y: (_ for _ in ()).throw(ValueError("these are not the recorded ones")),
    )
    got = torch.full((64,), 0.5)
    got[0] += 7e-6
    assert not is_right(one, got)


def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A long output, which comes without rows, and a short one."""
    return torch.cat([y] * 512), less_itself(x, y)


def of_both(*indices: int) -> InputSet:
    """Some of the outputs, as sets of rows have."""
    one = input_set(OF_SIXTY_FOUR, torch.full((64,), 0.5))
    call, _ = call_of(f"{__name__}.both", both, OF_SIXTY_FOUR, OF_SIXTY_FOUR)
    trust(call.op)
    long, short = torch.full((64 * 512,), 0.5), torch.full((64,), 0.5)
    outputs = tuple(
        expected_output((long, short)[index].double(), long.dtype, index=index) for index in indices
    )
    expected = ExpectedSet(name="fresh", outputs=outputs, arguments={})
    return replace(one, call=replace(one.call, op=call.op), expected=expected)


def test_a_set_may_expect_some_of_the_outputs() -> None:
    """Errors are taken by an output's number."""
    got = torch.full((64,), 0.5)
    got[0] += 7e-6
    assert is_right(of_both(1), got)


def test_few_are_few_of_the_smallest_output() -> None:
    """A small gradient that is wrong throughout is few of all elements beside a large one that is right."""
    long, short = torch.full((64 * 512,), 0.5), torch.full((64,), 0.5)
    short[0] += 7e-6
    assert is_right(of_both(0, 1), long, short)
    assert not is_right(of_both(0, 1), long, torch.full((64,), 0.5 + 7e-6))


def test_an_op_of_which_the_gold_alone_is_known_is_not_run() -> None:
    """It may be the very code that is gated."""
    one = input_set(OF_SIXTY_FOUR, torch.full((64,), 0.5))
    (output,) = one.expected.outputs
    alone = replace(one, expected=replace(one.expected, outputs=(replace(output, gold_alone=True),)))
    got = torch.full((64,), 0.5)
    got[0] += 7e-6
    checks = compare(one.expected, [got], DERIVED)
    assert widened(one, checks) is not None
    assert widened(alone, checks) is None


def test_numbers_stay_where_the_op_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU an index or a probability beyond its range ends the process that judges."""
    seen: list[torch.Tensor] = []

    def looked_at(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.extend((x.double(), y.double()))
        return x + y

    one = input_set(torch.ones(64), -torch.ones(64))
    monkeypatch.setattr(f"{__name__}.less_itself", looked_at)
    other_errors(one.call, one.layout, one.context, "cpu", ())
    assert all(bool((tensor.abs() <= 1).all()) for tensor in seen)
    assert len({float(tensor[0]) for tensor in seen}) > 8
