"""Numbers and positions as messages print them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pytest_cgins.core.dtypes import DTYPES
from pytest_cgins.core.layout import dtype_name


def number(value: float | complex, dtype: torch.dtype) -> str:
    """A value with digits enough to tell it from its neighbours in `dtype`."""
    if isinstance(value, int) or not dtype.is_floating_point:
        return str(value)
    assert isinstance(value, float)
    if not math.isfinite(value):
        return repr(value)
    return repr(value) if dtype == torch.float64 else f"{value:.{_digits(dtype)}g}"


def _digits(dtype: torch.dtype) -> int:
    known = DTYPES.get(dtype_name(dtype), DTYPES["float32"])  # a kernel may answer in any
    return known.digits


def position(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Index of the element with row-major number `flat` in a tensor of `shape`."""
    index: list[int] = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


def subject(index: int, count: int) -> str:
    """Subject of a sentence about one of `count` outputs."""
    return "the output" if count == 1 else f"output {index}"
