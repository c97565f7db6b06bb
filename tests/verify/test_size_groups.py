"""Argument tensors of other sizes: strides, masks and indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from pytest_cgins.core.layout import lay_out
from pytest_cgins.verify.semantics import semantics_for
from pytest_cgins.verify.size_groups import Places, prime_below, resized, stride_like
from tests.verify.helpers import call_of, normal


@pytest.mark.parametrize(
    ("tensor", "shape", "stride"),
    [
        (torch.empty(4, 8), (4, 9), (9, 1)),
        (torch.empty(8, 4).T, (4, 9), (1, 4)),
        (torch.empty(2, 3, 5, 7).to(memory_format=torch.channels_last), (2, 3, 5, 8), (120, 1, 24, 3)),
        (torch.empty(6, 3, 8)[:, 1], (6, 9), (27, 1)),
        (torch.empty(4, 10)[:, :8], (4, 9), (11, 1)),
        (torch.empty(1, 8).expand(4, 8), (4, 9), (0, 1)),
        (torch.empty(4, 1, 8), (4, 1, 9), (9, 9, 1)),
        (torch.empty(4, 1, 8), (4, 3, 8), (24, 8, 1)),
    ],
)
def test_dimensions_keep_order_and_gaps(
    tensor: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    """Row-major, transposed, channels-last, interleaved, padded and expanded tensors stay so."""
    assert stride_like(lay_out([tensor]).metas[0], shape) == stride


def changed(tensor: torch.Tensor, shape: tuple[int, ...], moves: dict[int, int]) -> torch.Tensor:
    call, tensors = call_of("torch.neg", torch.neg, tensor)
    return resized(tensors, lay_out(tensors).metas, [shape], moves, semantics_for(call))[0]


def test_what_is_beyond_repeats_the_beginning() -> None:
    """Rows and columns that come are the first ones again."""
    x = normal(3, 4)
    made = changed(x, (4, 5), {3: 4, 4: 5})
    assert torch.equal(made[:3, :4], x)
    assert torch.equal(made[3, :4], x[0])
    assert torch.equal(made[:3, 4], x[:, 0])


def test_mask_that_loses_its_last_open_column_stays_open() -> None:
    """A row that let one key through lets one through, else it would be one that lets nothing through."""
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[:, 4] = True
    assert bool(changed(mask, (3, 4), {5: 4}).any(-1).all())
    added = torch.full((3, 5), -torch.inf)
    added[:, 4] = 0
    assert bool((changed(added, (3, 4), {5: 4}) == 0).any(-1).all())


def test_indices_are_wrapped_where_what_they_point_into_shrank() -> None:
    """Others stay, an index to be ignored as well."""
    made = changed(torch.tensor([0, 46, 49, -100]), (4,), {50: 47})
    assert made.tolist() == [0, 46, 2, -100]


@pytest.mark.parametrize(("size", "prime"), [(64, 61), (12, 11), (5, 3), (4, 5), (2, 3), (1000, 997)])
def test_primes(size: int, prime: int) -> None:
    """The greatest below; of small sizes one more."""
    assert prime_below(size) == prime


def test_nothing_keeps_the_form_of_what_there_was() -> None:
    """No rows: strides are those of one row, expanded dimensions and indices are no obstacle."""
    assert stride_like(lay_out([torch.zeros(4, 6)]).metas[0], (0, 6)) == (6, 1)
    recorded = [torch.zeros(4, 6), torch.zeros(6).expand(4, 6), torch.arange(4)]
    metas = lay_out(recorded).metas
    semantics = semantics_for(call_of("project.op", lambda x, y, i: (x, y, i), *recorded)[0])
    made = resized(recorded, metas, [(0, 6), (0, 6), (0,)], {4: 0}, semantics)
    assert [tuple(one.shape) for one in made] == [(0, 6), (0, 6), (0,)]


def batch_of(op: str, run: Callable[..., Any], *args: Any, given: int) -> list[int]:
    """Tensors whose first dimension is the batch of a call whose output has so many rows."""
    call, tensors = call_of(op, run, *args)
    semantics = semantics_for(call)
    return Places(call, semantics, tensors).batch_of_rows([given])


def test_rows_are_those_that_an_output_has() -> None:
    """Of a table and indices into it those of the indices; never offsets, which are illegal in another order."""
    table, chosen = normal(8, 6), torch.tensor([3, 1, 7, 0, 5])
    assert batch_of("torch.index_select", torch.index_select, table, 0, chosen, given=5) == [1]
    bags = torch.randint(13, (24,), generator=torch.Generator().manual_seed(1))
    offsets = torch.arange(0, 24, 4)
    op = "torch.nn.functional.embedding_bag"
    assert batch_of(op, functional.embedding_bag, bags, normal(13, 5), offsets, given=6) == [0]
