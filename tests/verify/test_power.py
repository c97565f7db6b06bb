"""The power check: a forged answer that every rule would accept is found out."""

from __future__ import annotations

import torch

from pytest_cgins.config import Tolerance
from pytest_cgins.verify import power
from tests.verify.helpers import DERIVED, expected_output, expected_set, normal

LAX = Tolerance(kind="explicit", atol=10.0)


def test_ordinary_answer_is_told_from_all_forgeries() -> None:
    """Zeros, ones, a copy of an input and moved rows are refused."""
    x = normal(8, 9)
    made = expected_set(expected_output(x * 2 + 1), arguments={"x": x})
    results = power.check([made], DERIVED)
    assert [(result.forgery, result.caught) for result in results] == [
        ("zeros", True),
        ("ones", True),
        ("input-copy", True),
        ("permuted-gold", True),
    ]


def test_zero_answer_cannot_be_told_from_zeros() -> None:
    """An output of zeros accepts zeros, and its own rows in another order."""
    results = {
        r.forgery: r.caught for r in power.check([expected_set(expected_output(torch.zeros(4, 5)))], DERIVED)
    }
    assert results == {"zeros": False, "ones": True, "permuted-gold": False}


def test_identity_cannot_be_told_from_a_copy() -> None:
    """relu of positive inputs is a copy of the input."""
    x = normal(4, 5).abs()
    made = expected_set(expected_output(x), arguments={"input": x})
    assert {r.forgery: r.caught for r in power.check([made], DERIVED)}["input-copy"] is False


def test_copy_is_no_forgery_where_the_op_is_an_identity() -> None:
    """Dropout in evaluation gives its input whatever the input is: copying it is right."""
    made = [
        expected_set(expected_output(x), name=name, arguments={"input": x})
        for name, x in (("recorded", normal(4, 5)), ("fresh", normal(4, 5) * 3))
    ]
    results = power.check(made, DERIVED)
    assert [result.forgery for result in results] == ["zeros", "ones", "permuted-gold"]
    assert all(result.caught for result in results)


def test_copy_that_is_right_on_recorded_inputs_alone_is_caught() -> None:
    """relu of positive numbers is a copy, of fresh ones it is not."""
    x, y = normal(4, 5).abs(), normal(4, 5)
    made = [
        expected_set(expected_output(x), arguments={"input": x}),
        expected_set(expected_output(y.relu()), name="fresh", arguments={"input": y}),
    ]
    assert {r.forgery: r.caught for r in power.check(made, DERIVED)}["input-copy"] is True


def test_each_input_that_could_be_copied_must_be_caught() -> None:
    """x + 0 equals its first argument, whatever the second is."""
    x = normal(4, 5)
    made = expected_set(expected_output(x), arguments={"other": torch.ones(4, 5), "input": x})
    assert {r.forgery: r.caught for r in power.check([made], DERIVED)}["input-copy"] is False


def test_one_set_of_inputs_that_tells_is_enough() -> None:
    """A forgery must pass on all sets to go unnoticed."""
    blind = expected_set(expected_output(torch.zeros(4, 5)))
    telling = expected_set(expected_output(normal(4, 5)), name="fresh")
    assert all(result.caught for result in power.check([blind, telling], DERIVED))


def test_wide_explicit_tolerance_is_held_by_the_reference_rule() -> None:
    """atol larger than the output accepts anything as gold; rule 2 does not."""
    x = normal(4, 5)
    made = expected_set(expected_output(x, gold=x))
    assert all(result.caught for result in power.check([made], LAX))


def test_input_copy_is_offered_only_where_one_fits() -> None:
    """Another shape or dtype is no candidate."""
    made = expected_set(
        expected_output(normal(4, 5)), arguments={"x": normal(4, 6), "y": normal(4, 5).double()}
    )
    assert "input-copy" not in [result.forgery for result in power.check([made], DERIVED)]


def test_integer_outputs_are_checked_too() -> None:
    """Equality tells all but equal rows."""
    made = expected_set(expected_output(torch.arange(12).reshape(3, 4), torch.int64))
    assert all(result.caught for result in power.check([made], DERIVED))


def test_single_rows_are_permuted_by_element() -> None:
    """One row moves by one element, a single number not at all."""
    assert power.permuted(torch.arange(4)).tolist() == [3, 0, 1, 2]
    forgeries = [r.forgery for r in power.check([expected_set(expected_output(torch.tensor(2.0)))], DERIVED)]
    assert forgeries == ["zeros", "ones"]


def test_empty_output_is_weak() -> None:
    """No element, no power."""
    results = power.check([expected_set(expected_output(torch.zeros(0, 4)))], DERIVED)
    assert {result.forgery: result.caught for result in results} == {"zeros": False, "ones": False}
