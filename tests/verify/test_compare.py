"""The two rules on given tensors: what passes, what fails, and what the message says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from pytest_cgins.config import Tolerance
from pytest_cgins.core.model import Reason
from pytest_cgins.verify.compare import compare
from tests.verify.helpers import DERIVED, expected_output, expected_set, failed, normal, passed

POSITIONS = torch.arange(0, 3000, 3)


def test_right_answer_passes_all_rules_in_order() -> None:
    """Form, gold, reference: three passing checks, with what was compared."""
    reference = normal(30, 100)
    expected = expected_set(expected_output(reference, gold=reference, positions=POSITIONS))
    checks = compare(expected, [reference], DERIVED)
    assert [(check.rule, check.passed, check.compared) for check in checks] == [
        ("form", True, 0),
        ("gold", True, 1000),
        ("reference", True, 3000),
    ]
    assert all(check.message == "" for check in checks)


def test_without_gold_rule_1_is_left_out() -> None:
    """Fresh inputs and packs of tier `shapes` have rule 2 only."""
    reference = normal(3, 4)
    checks = compare(expected_set(expected_output(reference)), [reference], DERIVED)
    assert [check.rule for check in checks] == ["form", "reference"]


def test_gold_counts_even_where_the_reference_agrees() -> None:
    """An answer equal to the reference fails rule 1 if the recorded gold says otherwise."""
    reference = normal(30, 100)
    check = failed(expected_set(expected_output(reference, gold=reference + 0.0)), reference + 1.0)
    assert (check.rule, check.reason) == ("gold", Reason.GOLD_MISMATCH)


def test_message_has_worst_element_index_values_tolerance_counts_and_place() -> None:
    """One paragraph with everything that a person needs."""
    reference = normal(37, 90)
    answer = reference.clone()
    answer[36] += 1.0
    answer[36, 5] = 1000.0
    check = failed(expected_set(expected_output(reference)), answer)
    assert check.reason is Reason.REFERENCE_MISMATCH
    assert check.worst is not None
    assert check.worst.index == (36, 5)
    assert float(check.worst.expected) == float(reference[36, 5].double())
    assert float(check.worst.got) == 1000.0
    assert 0 < check.worst.tolerance < 1e-5
    assert (check.wrong, check.compared) == (90, 3330)
    assert check.map.startswith("rows 36 (1 of 37 rows wrong), all columns\n")
    pattern = (
        r"the output differs from the fp64 reference on the recorded inputs: 90 of 3330 compared elements are "
        r"wrong\. Worst is \[36, 5\]: expected -?\d+\.\d+, got 1000, allowed ±\S+\. Where: rows 36 .*, all columns\."
    )
    assert re.fullmatch(pattern, check.message), check.message


def test_gold_is_printed_in_digits_of_its_dtype() -> None:
    """Nine digits for fp32: enough to find the number again, no more."""
    reference = torch.full((4, 4), 0.1)
    check = failed(expected_set(expected_output(reference, gold=reference)), reference + 1)
    assert check.worst is not None
    assert (check.worst.expected, check.worst.got) == ("0.100000001", "1.10000002")


def test_rms_failure_says_that_no_element_is_beyond_its_own_tolerance() -> None:
    """All elements a little off in half precision: refused as a whole, everywhere."""
    reference = normal(50, 100).abs() + 0.5
    answer = (reference * (1 + 2 * torch.finfo(torch.float16).eps)).to(torch.float16)
    check = failed(expected_set(expected_output(reference, torch.float16)), answer)
    assert "no element is beyond its own tolerance, but the rms error is" in check.message
    assert "Where: everywhere" in check.message
    assert check.share is not None
    assert check.share > 1


@pytest.mark.parametrize(("error", "expected"), [(0.9e-3, True), (1.1e-3, False)])
def test_explicit_tolerance_replaces_rule_1_only(error: float, expected: bool) -> None:
    """allclose decides about gold; the derived rule about the reference stays."""
    reference = torch.ones(10, 10)
    tolerance = Tolerance(kind="explicit", rtol=0.0, atol=1e-3)
    made = expected_set(expected_output(reference, gold=reference))
    checks = {check.rule: check.passed for check in compare(made, [reference + error], tolerance)}
    assert checks["gold"] is expected
    assert checks["reference"] is False


def test_element_outside_the_sample_is_seen_by_the_statistics() -> None:
    """Rule 1 samples the gold, and holds the mean of the whole output against the recorded one."""
    reference = normal(30, 100)
    answer = reference.clone()
    answer.view(-1)[1] += 500.0
    made = expected_set(expected_output(reference, gold=reference, positions=POSITIONS))
    check = next(check for check in compare(made, [answer], DERIVED) if check.rule == "gold")
    assert not check.passed
    assert "the mean of all elements is" in check.message


def test_integers_must_be_equal() -> None:
    """One index off by one fails, at its place."""
    reference = torch.arange(100).reshape(10, 10)
    made = expected_set(expected_output(reference, torch.int64, gold=reference))
    assert passed(made, reference)
    wrong = reference.clone()
    wrong[3, 4] += 1
    check = failed(made, wrong)
    assert check.worst is not None
    assert (check.worst.index, check.worst.expected, check.worst.got) == ((3, 4), "34", "35")


def test_booleans_must_be_equal() -> None:
    """bool outputs are compared without arithmetic."""
    reference = torch.tensor([True, False, True])
    made = expected_set(expected_output(reference, torch.bool))
    assert passed(made, reference)
    assert failed(made, ~reference).wrong == 3


def test_the_worse_of_two_outputs_is_shown() -> None:
    """A check covers all outputs; a failing second one is not hidden by a right first one."""
    first, second = normal(4, 5), normal(6, 7, seed=1)
    made = expected_set(expected_output(first), expected_output(second, index=1))
    check = failed(made, first, second + 1)
    assert check.message.startswith("output 1 differs")
    assert check.worst is not None
    assert check.worst.output == 1


def test_no_output_makes_no_check() -> None:
    """Nothing compared is no pass: the gate refuses a case without checks."""
    assert compare(expected_set(), [], DERIVED) == ()


def test_share_of_a_broken_pattern_is_finite() -> None:
    """JSON has no infinity."""
    reference = normal(4, 5)
    gold = reference.clone()
    gold[0, 0] = torch.nan
    lax = Tolerance(kind="explicit", atol=1.0)
    check = failed(expected_set(expected_output(reference, gold=gold)), reference, tolerance=lax)
    assert check.share == 1e300


def test_gold_that_overflowed_does_not_bind_a_kernel_that_did_not() -> None:
    """Where torch gave infinity and the reference is finite, either answer has the right form and both rules hold."""
    reference = normal(4, 5)
    overflowed = reference.clone()
    overflowed[0, 0] = torch.inf
    made = replace(expected_output(reference, gold=overflowed), answer=overflowed)
    for answer in (reference, overflowed):
        assert all(check.passed for check in compare(expected_set(made), [answer], DERIVED))
