"""An answer's form and the two rules, on given tensors: what passes, what fails, and what the message says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from pytest_cgins.config import Tolerance
from pytest_cgins.core.verdict import Reason
from pytest_cgins.verify.compare import compare
from tests.verify.helpers import DERIVED, expected_output, expected_set, failed, normal, passed

X, NAN, INF = normal(3, 4), torch.nan, torch.inf
LAST = normal(2, 3, 4, 5).to(memory_format=torch.channels_last)
ONES, ARANGED = torch.ones(4, 6, dtype=torch.bool), torch.arange(6)


def with_value(tensor: torch.Tensor, at: tuple[int, ...], value: float) -> torch.Tensor:
    """A copy with another number in one place."""
    changed = tensor.clone()
    changed[at] = value
    return changed


def poisoned(tensor: torch.Tensor, byte: int, count: int = 1) -> torch.Tensor:
    """A copy with bytes 0xA5 from one byte on."""
    changed = tensor.clone()
    changed.view(torch.uint8).view(-1)[byte:][:count] = 0xA5
    return changed


Refused = tuple[torch.Tensor, list[torch.Tensor], Reason, str]
REFUSED: dict[str, Refused] = {
    "none": (X, [], Reason.OUTPUT_COUNT, "the kernel gave 0 output tensors, the op gives 1 (recorded inputs)."),
    "two": (X, [X, X], Reason.OUTPUT_COUNT, "the kernel gave 2 output tensors, the op gives 1 (recorded inputs)."),
    **{  # Never broadcast, also one that has as many elements.
        f"shape {shape}": (X, [torch.zeros(shape)], Reason.SHAPE, f"the output has shape {shape}, expected is (3, 4)")
        for shape in ((4, 3), (1, 4), (4,), (3, 4, 1), (12,))
    },
    "empty": (X, [torch.zeros(0, 4)], Reason.EMPTY, "is empty, shape (0, 4); expected is shape (3, 4)"),
    "wider": (X, [X.double()], Reason.DTYPE, "is float64, expected is float32"),
    "strides": (
        LAST, [LAST.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).mT.contiguous().mT], Reason.STRIDE,
        "expected are the gold's (60, 1, 15, 3), or contiguous ones",
    ),
    "computed NaN": (X, [torch.full((3, 4), INF) - INF], Reason.NAN_PATTERN, "12 of 12 elements are NaN, but not in torch"),
    "swallowed NaN": (with_value(X, (1, 2), NAN), [X], Reason.NAN_PATTERN, "1 of 12 elements is not NaN, but NaN in torch"),
    **{
        f"{right} as {wrong}": (
            with_value(X, (1, 2), right), [with_value(X, (1, 2), wrong)], Reason.INFINITE_PATTERN, "First is [1, 2]"
        )
        for right, wrong in ((INF, -INF), (INF, 3.0), (2.0, INF))
    },
    "integer": (
        ARANGED, [with_value(ARANGED, (5,), torch.iinfo(torch.int64).min)], Reason.UNWRITTEN, "last element only"
    ),
    **{
        str(dtype): (
            ARANGED.to(dtype), [poisoned(ARANGED.to(dtype), -dtype.itemsize, dtype.itemsize)], Reason.UNWRITTEN,
            "last element only",
        )
        for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    },
    "boolean": (ONES, [poisoned(ONES, 18, 6)], Reason.UNWRITTEN, "6 of 24 elements are never written"),
}  # fmt: skip


@pytest.mark.parametrize(("reference", "answers", "reason", "words"), REFUSED.values(), ids=list(REFUSED))
def test_a_wrong_form_has_its_reason(
    reference: torch.Tensor, answers: list[torch.Tensor], reason: Reason, words: str
) -> None:
    """Before anything is compared; the right answer has the right form."""
    expected = expected_set(expected_output(reference))
    assert passed(expected, reference)
    check = failed(expected, *answers)
    assert check.reason is reason
    assert words in check.message


def test_empty_output_of_an_op_that_gives_none_is_stated() -> None:
    """If the op's own output is empty the check passes, and says that nothing was compared."""
    checks = compare(expected_set(expected_output(torch.zeros(0, 4))), [torch.zeros(0, 4)], DERIVED)
    assert all(check.passed for check in checks)
    assert checks[0].message == "the outputs are empty, as those of the op are: nothing was compared"


@pytest.mark.parametrize(
    ("reference", "answer"),
    [(LAST, LAST.contiguous()), (normal(5, 1), normal(5, 1).as_strided((5, 1), (1, 77)))],
    ids=["contiguous", "of size one"],
)
def test_other_strides_may_be_right(reference: torch.Tensor, answer: torch.Tensor) -> None:
    """The gold's memory format and row-major are accepted; of dimensions of size 1 torch sets strides freely."""
    assert passed(expected_set(expected_output(reference)), answer)


def test_other_sizes_may_have_any_order_of_dimensions() -> None:
    """Torch's own order follows the backend that it chooses by size; gaps between rows are nobody's."""
    resized = expected_set(replace(expected_output(LAST), resized=True))
    turned = LAST.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    assert not turned.is_contiguous()
    assert passed(resized, turned)
    assert not passed(expected_set(expected_output(LAST)), turned)
    wide = torch.zeros(*LAST.shape[:-1], LAST.shape[-1] + 1)[..., :-1].copy_(LAST)
    assert failed(resized, wide).reason is Reason.STRIDE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_unwritten_row(dtype: torch.dtype) -> None:
    """Poison that is still there is called unwritten, with the rows."""
    reference = normal(37, 90)
    answer = reference.to(dtype, copy=True)
    answer[36] = torch.nan
    check = failed(expected_set(expected_output(reference, dtype)), answer)
    assert check.reason is Reason.UNWRITTEN
    assert check.wrong == 90
    assert check.compared == 37 * 90
    assert "90 of 3330 elements are never written" in check.message
    assert "rows 36 (1 of 37 rows wrong), all columns" in check.message
    assert check.worst is not None
    assert check.worst.index == (36, 0)
    assert check.worst.got == "nan"


def test_overflow_of_torch_alone_excuses_either() -> None:
    """Where torch overflows in half precision and the reference does not, both answers are right."""
    reference = torch.tensor([[7e4, 1.0, 2.0]])
    expected = expected_set(expected_output(reference, torch.float16))
    assert passed(expected, torch.tensor([[torch.inf, 1.0, 2.0]], dtype=torch.float16))
    assert failed(expected, torch.tensor([[6e4, 1.0, 2.0]], dtype=torch.float16)).reason is (
        Reason.INFINITE_PATTERN
    )


def test_a_byte_that_looks_like_poison_is_only_wrong() -> None:
    """Among other wrong bytes one of 0xA5 says nothing."""
    reference = torch.arange(6).to(torch.uint8)
    answer = reference + 1
    answer[5] = 0xA5
    assert failed(expected_set(expected_output(reference)), answer).reason is not Reason.UNWRITTEN


def test_second_output_is_named() -> None:
    """With several outputs the message says which."""
    outputs = (expected_output(normal(3)), expected_output(normal(4), index=1))
    check = failed(expected_set(*outputs), normal(3), torch.zeros(5))
    assert check.message.startswith("output 1 has shape (5,)")


POSITIONS = torch.arange(0, 3000, 3)
INTEGERS = torch.arange(100).reshape(10, 10)


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


@pytest.mark.parametrize(
    ("right", "wrong", "worst", "count"),
    [
        (INTEGERS, INTEGERS + (INTEGERS == 34), ((3, 4), "34", "35"), 1),
        (torch.tensor([True, False, True]), torch.tensor([False, True, False]), ((0,), "True", "False"), 3),
    ],
)
def test_integers_and_booleans_must_be_equal(
    right: torch.Tensor, wrong: torch.Tensor, worst: tuple[tuple[int, ...], str, str], count: int
) -> None:
    """One index off by one fails, at its place."""
    made = expected_set(expected_output(right, gold=right))
    assert passed(made, right)
    check = failed(made, wrong)
    assert check.wrong == count
    assert check.worst is not None
    assert (check.worst.index, check.worst.expected, check.worst.got) == worst


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
