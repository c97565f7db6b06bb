"""The table of element types says what torch says of those that it has."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_cgins.core.dtypes import DTYPES, Dtype

KNOWN = [dtype for dtype in DTYPES.values() if hasattr(torch, dtype.name)]


@pytest.mark.parametrize("dtype", KNOWN, ids=lambda dtype: dtype.name)
def test_sizes_are_torch_s(dtype: Dtype) -> None:
    """Bytes of an element, and the bytes that DLPack is told."""
    assert getattr(torch, dtype.name).itemsize == dtype.nbytes


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_extremes_and_digits_are_torch_s(name: str) -> None:
    """The least finite number; the digits that tell a number from its neighbours."""
    told = torch.finfo(getattr(torch, name))
    assert DTYPES[name].lowest == told.min
    assert DTYPES[name].digits == math.ceil(1 + (1 - math.log2(told.eps)) * math.log10(2))


@pytest.mark.parametrize("field", ["short", "element", "cpp"])
def test_codes_and_names_are_distinct(field: str) -> None:
    """What is written down stands for one type."""
    given = [value for dtype in DTYPES.values() if (value := getattr(dtype, field))]
    assert len(given) == len(set(given))
