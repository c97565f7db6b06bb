"""Tensors compared and copied bit for bit."""

from __future__ import annotations

import pytest
import torch

from pytest_cgins.core.bitwise import all_same, distances, same, same_memory, snapshot

ROWS = torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    "tensor",
    [ROWS, ROWS.t(), ROWS[:, ::2], ROWS[1:, 2:5], ROWS[:1].expand(3, 6), ROWS[:0], torch.tensor(2.0)],
    ids=["dense", "transposed", "gaps", "slice", "expanded", "empty", "scalar"],
)
def test_a_snapshot_has_the_same_numbers_and_strides(tensor: torch.Tensor) -> None:
    """Gaps and overlaps stay, so that the form of an answer can be judged; later writes do not reach it."""
    base = tensor.clone() if tensor.is_contiguous() else tensor
    copy = snapshot(base)
    assert (copy.shape, copy.stride(), copy.dtype) == (base.shape, base.stride(), base.dtype)
    assert same(copy, base)
    assert not base.numel() or copy.data_ptr() != base.data_ptr()


def test_bits_are_compared_not_values() -> None:
    """NaN equals itself, 0 is not -0, and shapes and dtypes must agree."""
    nan = torch.tensor([float("nan"), 1.0])
    assert same(nan, nan.clone())
    assert not same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same(ROWS, ROWS.reshape(6, 4))
    assert not same(ROWS, ROWS.double())


def test_answers_need_as_many_tensors() -> None:
    """One tensor more or less is another answer."""
    assert all_same([ROWS, ROWS], [ROWS.clone(), ROWS.clone()])
    assert not all_same([ROWS, ROWS], [ROWS])


def test_memory_is_compared_with_its_gaps() -> None:
    """Whatever a tensor shows of its memory, all of it counts."""
    one, other = ROWS.clone(), ROWS.clone()
    assert same_memory(one[:1].t(), other[:, ::2])
    other[3, 5] = -1
    assert not same_memory(one[:1], other[:1])
    assert not same_memory(ROWS[:0].clone(), one)


def test_a_kernel_that_replaces_torchs_functions_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions were taken before any kernel was loaded."""
    monkeypatch.setattr(torch, "equal", lambda *_: True)
    assert not same(ROWS, ROWS + 1)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (torch.nan, -torch.nan, 0.0),
        (torch.inf, torch.inf, 0.0),
        (0.0, -0.0, 0.0),
        (1.5, -2.5, 4.0),
        (torch.nan, 1.0, torch.inf),
        (torch.inf, 1.0, torch.inf),
        (torch.inf, -torch.inf, torch.inf),
        (1j, 1.0, 2.0**0.5),
    ],
)
def test_what_only_one_has_is_infinitely_far(one: complex, other: complex, apart: float) -> None:
    """NaN beside NaN, and one infinity, are as good as the same number."""
    assert float(distances(torch.tensor([one]), torch.tensor([other]))) == pytest.approx(apart)
