from __future__ import annotations

import math

import pytest
import torch

from pytest_cgins.packs import statistics
from pytest_cgins.packs.statistics import summarize


def test_counts_and_moments_are_over_the_finite_values() -> None:
    """NaN and infinities are counted, and left out of mean, std and extremes."""
    summary = summarize(torch.tensor([1.0, 3.0, math.nan, math.inf, -math.inf, 0.0]))
    assert (summary.numel, summary.finite, summary.nan, summary.positive_infinite, summary.zero) == (
        6,
        3,
        1,
        1,
        1,
    )
    assert summary.mean == pytest.approx(4 / 3)
    assert summary.std == pytest.approx(torch.tensor([1.0, 3.0, 0.0]).std(correction=0).item())
    assert (summary.minimum, summary.maximum) == (0.0, 3.0)


def test_chunks_merge_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The merged moments of many chunks are those of one."""
    values = torch.randn(10_000, dtype=torch.float64) * 3 + 100
    values[::1000] = math.inf
    whole = summarize(values)
    monkeypatch.setattr(statistics, "_CHUNK", 333)
    parts = summarize(values)
    assert parts.finite == whole.finite == 9990
    assert parts.mean == pytest.approx(whole.mean, rel=1e-14)
    assert parts.std == pytest.approx(whole.std, rel=1e-12)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.uint8, torch.float8_e4m3fn, torch.complex64]
)
def test_every_kind_of_dtype_is_summarized(dtype: torch.dtype) -> None:
    """Integers, bools, float8 and complex values have moments too; complex count as pairs."""
    summary = summarize(torch.tensor([0, 1, 1, 0]).to(dtype))
    assert summary.numel == (8 if dtype.is_complex else 4)
    assert summary.maximum == 1
    assert summary.std > 0


@pytest.mark.parametrize("tensor", [torch.empty(0, 3), torch.full((4,), math.nan)])
def test_nothing_finite_gives_zeros(tensor: torch.Tensor) -> None:
    """Empty and all-NaN tensors have zero moments, not an error."""
    summary = summarize(tensor)
    assert (summary.finite, summary.mean, summary.std, summary.minimum, summary.maximum) == (0, 0, 0, 0, 0)


def test_moments_at_the_end_of_fp64_stay_finite() -> None:
    """A variance that overflows stops at the largest number, which JSON can hold."""
    summary = summarize(torch.tensor([1e308, -1e308], dtype=torch.float64))
    assert math.isfinite(summary.std)
    assert math.isfinite(summary.mean)


def test_autocast_does_not_reach_the_arithmetic() -> None:
    """Moments are fp64 also under the model's autocast."""
    values = torch.randn(1000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert summarize(values) == summarize(values.clone())
    assert summarize(values).mean == pytest.approx(values.double().mean().item(), rel=1e-12)
