"""Where wrong elements are, in words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.verify.locate import describe, describe_spread


def mask(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bool)


def words(wrong: torch.Tensor) -> str:
    return describe(wrong).partition("\n")[0]


def test_nothing_wrong_is_no_text() -> None:
    """No wrong element, no map."""
    assert describe(mask(3, 4)) == ""
    assert describe(mask(0, 4)) == ""


def test_last_row() -> None:
    """A whole row is told by number, with how many there are."""
    wrong = mask(128, 40)
    wrong[127] = True
    assert words(wrong) == "rows 127 (1 of 128 rows wrong), all columns"


def test_all_rows_but_one() -> None:
    """Nearly all rows are everywhere but the rows that are right."""
    wrong = ~mask(24, 40)
    wrong[0] = False
    assert words(wrong) == "everywhere but rows 0: 23 of 24 rows wrong, all columns"


def test_columns() -> None:
    """A range of columns in every row."""
    wrong = mask(50, 1000)
    wrong[:, 992:] = True
    assert words(wrong) == "columns 992–999 (8 of 1000 columns wrong), all rows"


def test_columns_with_a_step() -> None:
    """Every sixteenth column is told as such."""
    wrong = mask(50, 64)
    wrong[:, 15::16] = True
    assert words(wrong) == "columns 15, 31, … 63 (every 16th) (4 of 64 columns wrong), all rows"


def test_leading_dimensions_make_rows() -> None:
    """Rows are numbered over all dimensions but the last."""
    wrong = mask(4, 5, 30)
    wrong[3, 4] = True
    assert words(wrong) == "rows 19 (1 of 20 rows wrong), all columns"


def test_mostly_wrong_rows_say_how_much() -> None:
    """A row need not be wrong in every element."""
    wrong = mask(10, 100)
    wrong[3:5, :] = True
    wrong[3, ::10] = False
    assert words(wrong) == "rows 3–4 (2 of 10 rows wrong), 95% of their elements"


@pytest.mark.parametrize(
    ("index", "text"), [(-1, "last element only"), (0, "first element only"), (5, "one element only")]
)
def test_single_elements(index: int, text: str) -> None:
    """One wrong element, by where it is."""
    wrong = mask(5, 77)
    wrong.view(-1)[index] = True
    assert words(wrong).startswith(f"elements: {text}")


def test_tail_of_a_vector() -> None:
    """A contiguous run up to the end is the tail."""
    wrong = mask(1000)
    wrong[990:] = True
    assert words(wrong) == "elements: 990–999 of 1000 in row-major order, the tail"


def test_step_in_a_vector() -> None:
    """Equal distances are told as a step."""
    wrong = mask(100)
    wrong[3::8] = True
    assert words(wrong) == "elements: every 8th from 3 to 99 in row-major order (13 of 100)"


def test_tile() -> None:
    """A block is told by its rows and columns."""
    wrong = mask(64, 64)
    wrong[16:32, 48:] = True
    assert words(wrong) == "elements: the block of rows 16–31 × columns 48–63 (256 of 4096)"


def test_scattered_elements() -> None:
    """Elements without a pattern are counted over rows and columns."""
    wrong = mask(20, 20)
    wrong[2, 3] = wrong[7, 11] = wrong[7, 12] = True
    assert words(wrong) == "elements: 3 of 400, scattered over 2 of 20 rows and 3 of 20 columns"


def test_everywhere() -> None:
    """All, or at least half without whole rows or columns."""
    assert words(~mask(3, 4)) == "everywhere: all 12 elements"
    wrong = ~mask(10, 10)
    wrong.fill_diagonal_(False)
    assert words(wrong) == "everywhere: 90 of 100 elements (90%)"


def test_sampled_elements_count_among_the_seen() -> None:
    """Elements that were not compared do not make a row look right."""
    wrong, seen = mask(10, 10), mask(10, 10)
    seen[:, ::3] = True
    wrong[4, ::3] = True
    assert describe(wrong, seen).startswith("rows 4 (1 of 10 rows wrong)")
    assert describe(seen, seen) == "everywhere: all 40 elements (seen: 40 of 100 elements)"


def test_zero_dimensional_output() -> None:
    """A single number is everywhere."""
    assert words(torch.tensor(True)) == "everywhere: all 1 element"


def test_picture_shows_the_wrong_tile() -> None:
    """The picture has at most 8 x 32 characters, wrong cells marked."""
    wrong = mask(64, 64)
    wrong[56:, 32:] = True
    lines = describe(wrong).split("\n")[1:]
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
