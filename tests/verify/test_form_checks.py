"""Form: number, shape, dtype, strides, unwritten elements, NaN and infinities; each with its own reason."""

from __future__ import annotations

import pytest
import torch

from pytest_cgins.core.model import Reason
from tests.verify.helpers import expected_output, expected_set, failed, normal, passed


@pytest.mark.parametrize("count", [0, 2])
def test_output_count(count: int) -> None:
    """Too few and too many outputs are refused before anything is compared."""
    check = failed(expected_set(expected_output(normal(3, 4))), *[normal(3, 4)] * count)
    assert check.reason is Reason.OUTPUT_COUNT
    assert check.message == f"the kernel gave {count} output tensors, the op gives 1 (recorded inputs)."


@pytest.mark.parametrize("shape", [(4, 3), (1, 4), (4,), (3, 4, 1), (12,)])
def test_shapes_are_never_broadcast(shape: tuple[int, ...]) -> None:
    """Every other shape is refused, also one that would broadcast or has as many elements."""
    check = failed(expected_set(expected_output(normal(3, 4))), torch.zeros(shape))
    assert check.reason is Reason.SHAPE
    assert str(shape) in check.message
    assert "expected is (3, 4)" in check.message


def test_empty_output_fails_where_the_op_gives_elements() -> None:
    """An empty tensor has a reason of its own, since comparing it would find nothing wrong."""
    check = failed(expected_set(expected_output(normal(3, 4))), torch.zeros(0, 4))
    assert check.reason is Reason.EMPTY


def test_empty_output_of_an_op_that_gives_none_is_stated() -> None:
    """If the op's own output is empty the check passes, and says that nothing was compared."""
    from pytest_cgins.verify.compare import compare
    from tests.verify.helpers import DERIVED

    checks = compare(expected_set(expected_output(torch.zeros(0, 4))), [torch.zeros(0, 4)], DERIVED)
    assert all(check.passed for check in checks)
    assert checks[0].message == "the outputs are empty, as those of the op are: nothing was compared"


def test_dtype() -> None:
    """A wider answer is not the right answer."""
    check = failed(expected_set(expected_output(normal(3, 4))), normal(3, 4).double())
    assert check.reason is Reason.DTYPE
    assert "is float64, expected is float32" in check.message


def test_strides_of_the_gold_or_contiguous_ones() -> None:
    """The gold's memory format and row-major are accepted, any other layout is refused."""
    reference = normal(2, 3, 4, 5).to(memory_format=torch.channels_last)
    expected = expected_set(expected_output(reference))
    assert passed(expected, reference)
    assert passed(expected, reference.contiguous())
    check = failed(
        expected, reference.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).mT.contiguous().mT
    )
    assert check.reason is Reason.STRIDE
    assert "expected are the gold's (60, 1, 15, 3), or contiguous ones" in check.message


def test_strides_of_dimensions_of_size_one_do_not_matter() -> None:
    """torch sets them freely."""
    answer = normal(5, 1).as_strided((5, 1), (1, 77))
    assert passed(expected_set(expected_output(answer.clone())), answer)


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


def test_computed_nan_is_not_unwritten() -> None:
    """inf − inf of the processor is a NaN pattern that differs, not an unwritten element."""
    infinite = torch.full((2, 8), torch.inf)
    answer = infinite - infinite
    check = failed(expected_set(expected_output(normal(2, 8))), answer)
    assert check.reason is Reason.NAN_PATTERN


def test_nan_is_wanted_where_reference_and_torch_have_it() -> None:
    """A kernel that swallows NaN is refused, one that keeps it passes."""
    reference = normal(4, 8)
    reference[1, 2] = torch.nan
    expected = expected_set(expected_output(reference))
    assert passed(expected, reference)
    assert failed(expected, reference.nan_to_num()).reason is Reason.NAN_PATTERN


def test_infinities_have_their_sign() -> None:
    """The same infinity at the same place, or the pattern is wrong."""
    reference = normal(4, 8)
    reference[1, 2] = torch.inf
    expected = expected_set(expected_output(reference))
    assert passed(expected, reference)
    for wrong in (-torch.inf, 3.0):
        answer = reference.clone()
        answer[1, 2] = wrong
        assert failed(expected, answer).reason is Reason.INFINITE_PATTERN
    answer = reference.clone()
    answer[0, 0] = torch.inf
    assert failed(expected, answer).reason is Reason.INFINITE_PATTERN


def test_overflow_of_torch_alone_excuses_either() -> None:
    """Where torch overflows in half precision and the reference does not, both answers are right."""
    reference = torch.tensor([[7e4, 1.0, 2.0]])
    expected = expected_set(expected_output(reference, torch.float16))
    assert passed(expected, torch.tensor([[torch.inf, 1.0, 2.0]], dtype=torch.float16))
    assert failed(expected, torch.tensor([[6e4, 1.0, 2.0]], dtype=torch.float16)).reason is (
        Reason.INFINITE_PATTERN
    )


def test_unwritten_integers() -> None:
    """Integer outputs are poisoned with their least value."""
    reference = torch.arange(6)
    answer = reference.clone()
    answer[5] = torch.iinfo(torch.int64).min
    check = failed(expected_set(expected_output(reference, torch.int64)), answer)
    assert check.reason is Reason.UNWRITTEN
    assert "last element only" in check.message


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_unwritten_unsigned_integers(dtype: torch.dtype) -> None:
    """Unsigned outputs are poisoned with bytes 0xA5."""
    reference = torch.arange(6).to(dtype)
    answer = reference.clone()
    answer.view(torch.uint8)[-dtype.itemsize :] = 0xA5
    check = failed(expected_set(expected_output(reference, dtype)), answer)
    assert check.reason is Reason.UNWRITTEN
    assert "last element only" in check.message


def test_a_byte_that_looks_like_poison_is_only_wrong() -> None:
    """Among other wrong bytes one of 0xA5 says nothing."""
    reference = torch.arange(6).to(torch.uint8)
    answer = reference + 1
    answer[5] = 0xA5
    assert (
        failed(expected_set(expected_output(reference, torch.uint8)), answer).reason is not Reason.UNWRITTEN
    )


def test_second_output_is_named() -> None:
    """With several outputs the message says which."""
    outputs = (expected_output(normal(3)), expected_output(normal(4), index=1))
    check = failed(expected_set(*outputs), normal(3), torch.zeros(5))
    assert check.message.startswith("output 1 has shape (5,)")


def test_unwritten_booleans() -> None:
    """A boolean that is neither 0 nor 1 was never written, though it compares equal to True."""
    reference = torch.ones(4, 6, dtype=torch.bool)
    answer = reference.clone()
    answer.view(torch.uint8)[3] = 0xA5
    check = failed(expected_set(expected_output(reference, torch.bool)), answer)
    assert check.reason is Reason.UNWRITTEN
    assert check.wrong == 6
