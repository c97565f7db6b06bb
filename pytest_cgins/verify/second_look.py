"""A second look at answers of which a few elements are a little beyond the tolerance: torch may have been near by luck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.verdict import Check
from pytest_cgins.verify.compare import compare
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.reference import other_errors

_TIMES = 16.0
"""Errors that are greater shares of the allowed one are looked at once."""
_FRACTION = 256
"""So are answers of which more than one element in so many is wrong."""
_MOST_NBYTES = 1 << 26
"""And larger sets, whose errors are too many to be small by luck."""


def checked(
    input_set: InputSet, got: Sequence[Tensor], device: str, tolerance: Tolerance
) -> tuple[Check, ...]:
    """All checks of an answer to a set of inputs.

    Args:
        input_set: the set.
        got: the answer, complex numbers as pairs of real ones.
        device: where torch answers: `cpu` or `cuda:0`.
        tolerance: of the case.
    """
    expected = input_set.expected
    checks = compare(expected, got, tolerance)
    failed = [check for check in checks if not check.passed]
    is_small = input_set.nbytes + expected.nbytes <= _MOST_NBYTES
    is_whole = expected.arrangement is None and input_set.large is None
    if not (failed and is_small and is_whole and all(map(_is_near, failed))):
        return checks
    try:
        errors = other_errors(input_set.call, input_set.layout, input_set.context, device, input_set.mutated)
    except Exception:  # noqa: BLE001 - a user's op may refuse other numbers in any way
        return checks
    pairs = zip(expected.outputs, errors, strict=True)
    outputs = tuple(_with_errors(output, error) for output, error in pairs)
    return compare(replace(expected, outputs=outputs), got, tolerance)


def _is_near(check: Check) -> bool:
    few = check.wrong <= max(1, check.compared // _FRACTION)
    return few and check.rule != "form" and check.share is not None and check.share <= _TIMES


def _with_errors(output: ExpectedOutput, errors: Tensor) -> ExpectedOutput:
    if output.scale is None or errors.shape != output.answer.shape or output.answer.element_size() == 8:
        return output
    return replace(output, scale=output.scale.at_least(errors.reshape(-1)))
