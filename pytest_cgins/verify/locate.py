"""Where the wrong elements are, in words and as a small picture; numbers and positions as messages print them.

An output is looked at as a matrix: the last dimension makes the columns, all others together the rows.
The first words are one of "rows", "columns", "elements", "everywhere".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from pytest_cgins.core.dtypes import DTYPES
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.core.text import counted

_PICTURE_ROWS = 8
_PICTURE_COLUMNS = 32
_SHADES = ".-+#"


def describe(wrong: Tensor, seen: Tensor | None = None) -> str:
    """Words for a boolean tensor of the output's shape that is true where elements are wrong.

    "" if none is. Otherwise one line of words, then, unless all elements are wrong, a picture of at most
    8 x 32 characters. `seen` is true where elements were compared; None means that all were.
    """
    seen = torch.ones_like(wrong) if seen is None else seen
    count, total = int(wrong.sum()), int(seen.sum())
    if count == 0:
        return ""
    sampled = "" if total == wrong.numel() else f" (seen: {total} of {counted(wrong.numel(), 'element')})"
    if count == total:
        return f"everywhere: all {counted(total, 'element')}{sampled}"
    width = wrong.shape[-1] if wrong.ndim else 1
    matrix, compared = wrong.reshape(-1, width), seen.reshape(-1, width)
    return f"{_words(matrix, compared)}{sampled}\n{picture(matrix, compared)}"


def describe_spread(wrong: Tensor, seen: Tensor | None = None) -> str:
    """Like `describe`, for elements that stand out only by how many there are.

    A row or column is left out if its part of wrong elements is less than half that of the one with the
    largest, by more than two standard deviations of such a count: an error in a few rows shows as these
    rows, one in all elements as everywhere.
    """
    seen = torch.ones_like(wrong) if seen is None else seen
    count = int(wrong.sum())
    if count == 0:
        return ""
    width = wrong.shape[-1] if wrong.ndim else 1
    matrix, compared = wrong.reshape(-1, width), seen.reshape(-1, width)
    rows, columns = (_dense(matrix.sum(d), compared.sum(d)) for d in (1, 0))
    region = rows[:, None] & columns[None, :] & compared
    words = _words(region, compared).partition(":")[0].partition(" (")[0]
    part = f"{count / int(compared.sum()):.0%} of the elements, spread"
    return f"{words}: {part}\n{picture(matrix, compared)}"


def _dense(wrong: Tensor, seen: Tensor) -> Tensor:
    expected = seen * (wrong / seen.clamp_min(1)).max()
    return wrong >= 0.5 * expected - 2.0 * expected.sqrt()


def _words(wrong: Tensor, seen: Tensor) -> str:
    rows, columns = wrong.shape
    count, total = int(wrong.sum()), int(seen.sum())
    bad_rows, bad_columns = wrong.any(1), wrong.any(0)
    row_density = count / int(seen[bad_rows].sum())
    column_density = count / int(seen[:, bad_columns].sum())
    whole_rows = rows > 1 and not bool(bad_rows.all()) and row_density > 0.5
    whole_columns = rows > 1 and not bool(bad_columns.all()) and column_density > 0.5
    row_numbers, column_numbers = bad_rows.nonzero().reshape(-1), bad_columns.nonzero().reshape(-1)
    if whole_rows and (not whole_columns or row_density >= column_density):
        return _lines("rows", row_numbers, rows, _extent("columns", column_numbers, columns, row_density))
    if whole_columns:
        return _lines("columns", column_numbers, columns, _extent("rows", row_numbers, rows, column_density))
    if count >= 0.5 * total:
        return f"everywhere: {count} of {counted(total, 'element')} ({count / total:.0%})"
    return f"elements: {_elements(wrong, row_numbers, column_numbers, count)}"


def _lines(word: str, bad: Tensor, total: int, extent: str) -> str:
    """Whole rows or columns; nearly all of them is "everywhere but"."""
    if len(bad) >= 0.75 * total:
        good = torch.ones(total, dtype=torch.bool)
        good[bad.cpu()] = False
        spared = _ranges(good.nonzero().reshape(-1).tolist())
        return f"everywhere but {word} {spared}: {len(bad)} of {total} {word} wrong, {extent}"
    return f"{word} {_ranges(bad.tolist())} ({len(bad)} of {total} {word} wrong), {extent}"


def _extent(word: str, bad: Tensor, total: int, density: float) -> str:
    if density == 1.0:
        return f"all {word}"
    if len(bad) < total:
        return f"{word} {_ranges(bad.tolist())}"
    return f"{density:.0%} of their elements"


def _elements(matrix: Tensor, bad_rows: Tensor, bad_columns: Tensor, count: int) -> str:
    total = matrix.numel()
    flat = matrix.reshape(-1).nonzero().reshape(-1)
    first, last = int(flat[0]), int(flat[-1])
    if count == 1:
        which = {0: "first element only", total - 1: "last element only"}.get(first, "one element only")
        return f"{which} (flat index {first} of {total})"
    if last - first + 1 == count:
        tail = ", the tail" if last == total - 1 else ""
        return f"{first}–{last} of {total} in row-major order{tail}"
    if count > 2:
        steps = flat.diff()
        step = int(steps[0])
        if bool((steps == step).all()):
            return f"every {step}th from {first} to {last} in row-major order ({count} of {total})"
    if count == len(bad_rows) * len(bad_columns):
        return (
            f"the block of rows {_ranges(bad_rows.tolist())} × columns {_ranges(bad_columns.tolist())} "
            f"({count} of {total})"
        )
    return (
        f"{count} of {total}, scattered over {len(bad_rows)} of {counted(matrix.shape[0], 'row')} and "
        f"{len(bad_columns)} of {counted(matrix.shape[1], 'column')}"
    )


def _ranges(indices: list[int], limit: int = 4) -> str:
    """`0–3, 7, 9–10`; at most `limit` ranges, then how many more, or a step where they have one."""
    if len(indices) > 2:
        step = indices[1] - indices[0]
        if step > 1 and all(b - a == step for a, b in pairwise(indices)):
            return f"{indices[0]}, {indices[1]}, … {indices[-1]} (every {step}th)"
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    texts = [str(a) if a == b else f"{a}–{b}" for a, b in ranges[:limit]]
    if len(ranges) > limit:
        texts.append(f"… {counted(len(ranges) - limit, 'more range')}")
    return ", ".join(texts)


def picture(wrong: Tensor, seen: Tensor) -> str:
    """A matrix in at most 8 x 32 characters: `.` none, `-` few, `+` many, `#` all compared are wrong."""
    rows, columns = wrong.shape
    height, width = min(rows, _PICTURE_ROWS), min(columns, _PICTURE_COLUMNS)
    row_cell = torch.arange(rows, device=wrong.device) * height // rows
    column_cell = torch.arange(columns, device=wrong.device) * width // columns
    cells = (row_cell[:, None] * width + column_cell[None, :]).reshape(-1)
    size = torch.bincount(cells[seen.reshape(-1)], minlength=height * width)
    bad = torch.bincount(cells[wrong.reshape(-1)], minlength=height * width)
    shade = torch.where(bad == 0, 0, torch.where(bad == size, 3, torch.where(2 * bad < size, 1, 2)))
    grid = shade.reshape(height, width).tolist()
    return "\n".join("".join(_SHADES[value] for value in line) for line in grid)


# ---- numbers and positions


def number(value: float | complex, dtype: torch.dtype) -> str:
    """A value with digits enough to tell it from its neighbours in `dtype`."""
    if isinstance(value, int) or not dtype.is_floating_point:
        return str(value)
    assert isinstance(value, float)
    if not math.isfinite(value):
        return repr(value)
    digits = DTYPES.get(dtype_name(dtype), DTYPES["float32"]).digits  # a kernel may answer in any
    return repr(value) if dtype == torch.float64 else f"{value:.{digits}g}"


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
