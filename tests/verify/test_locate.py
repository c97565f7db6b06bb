"""Where wrong elements are, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.verify.locate import describe, describe_spread


def mask(shape: tuple[int, ...], *true: Any) -> torch.Tensor:
    """False but at some indices and slices."""
    made = torch.zeros(shape, dtype=torch.bool)
    for index in true:
        made[index] = True
    return made


WORDS = [
    (mask((3, 4)), ""),
    (mask((0, 4)), ""),
    (mask((128, 40), 127), "rows 127 (1 of 128 rows wrong), all columns"),
    (~mask((24, 40), 0), "everywhere but rows 0: 23 of 24 rows wrong, all columns"),
    (mask((50, 1000), np.s_[:, 992:]), "columns 992–999 (8 of 1000 columns wrong), all rows"),
    (mask((50, 64), np.s_[:, 15::16]), "columns 15, 31, … 63 (every 16th) (4 of 64 columns wrong), all rows"),
    # Rows are numbered over all dimensions but the last.
    (mask((4, 5, 30), np.s_[3, 4]), "rows 19 (1 of 20 rows wrong), all columns"),
    (mask((10, 100), 3, 4) & ~mask((10, 100), np.s_[3, ::10]), "rows 3–4 (2 of 10 rows wrong), 95% of their elements"),
    (mask((5, 77), np.s_[-1, -1]), "elements: last element only (flat index 384 of 385)"),
    (mask((5, 77), np.s_[0, 0]), "elements: first element only (flat index 0 of 385)"),
    (mask((5, 77), np.s_[0, 5]), "elements: one element only (flat index 5 of 385)"),
    (mask((1000,), np.s_[990:]), "elements: 990–999 of 1000 in row-major order, the tail"),
    (mask((100,), np.s_[3::8]), "elements: every 8th from 3 to 99 in row-major order (13 of 100)"),
    (mask((64, 64), np.s_[16:32, 48:]), "elements: the block of rows 16–31 × columns 48–63 (256 of 4096)"),
    (
        mask((20, 20), np.s_[2, 3], np.s_[7, 11], np.s_[7, 12]),
        "elements: 3 of 400, scattered over 2 of 20 rows and 3 of 20 columns",
    ),
    (~mask((3, 4)), "everywhere: all 12 elements"),
    (~torch.eye(10, dtype=torch.bool), "everywhere: 90 of 100 elements (90%)"),
    (torch.tensor(True), "everywhere: all 1 element"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), WORDS, ids=[words for _, words in WORDS])
def test_wrong_elements_are_told_in_words(wrong: torch.Tensor, words: str) -> None:
    """Whole rows and columns by number, what has a pattern by it, anything else by how many there are."""
    assert describe(wrong).partition("\n")[0] == words


def test_sampled_elements_count_among_the_seen() -> None:
    """Elements that were not compared do not make a row look right."""
    wrong, seen = mask((10, 10), np.s_[4, ::3]), mask((10, 10), np.s_[:, ::3])
    assert describe(wrong, seen).startswith("rows 4 (1 of 10 rows wrong)")
    assert describe(seen, seen) == "everywhere: all 40 elements (seen: 40 of 100 elements)"


def test_picture_shows_the_wrong_tile() -> None:
    """The picture has at most 8 x 32 characters, wrong cells marked."""
    lines = describe(mask((64, 64), np.s_[56:, 32:])).split("\n")[1:]
    assert lines == ["." * 32] * 7 + ["." * 16 + "#" * 16]


def test_spread_everywhere_and_in_rows() -> None:
    """Many slightly wrong elements: everywhere if they are evenly spread, else the rows that have them."""
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(40, 200, generator=generator) < 0.3
    assert describe_spread(wrong).startswith("everywhere")
    wrong[5:] = False
    assert describe_spread(wrong).startswith("rows 0–4: 4% of the elements, spread")


@given(st.integers(0, 5), st.integers(0, 12), st.integers(0, 2**31))
@settings(max_examples=150, deadline=None)
def test_every_mask_has_words_and_a_small_picture(rows: int, columns: int, seed: int) -> None:
    """Any mask is described by one of four words, and pictured in at most 8 lines of 32 characters."""
    wrong = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.4
    for text in (describe(wrong), describe_spread(wrong)):
        first, *picture = text.split("\n")
        assert (first == "") == (not bool(wrong.any()))
        if first:
            assert first.split()[0].rstrip(":") in ("rows", "columns", "elements", "everywhere")
        assert len(picture) <= 8
        assert all(len(line) <= 32 and set(line) <= set(".-+#") for line in picture)
