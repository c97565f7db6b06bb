"""Ops that several ranks call together, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

import pytest_cgins


@pytest_cgins.mark
def summed(x: Tensor) -> Tensor:
    """The sum over all ranks."""
    total = x.clone()
    distributed.all_reduce(total)
    return total


@pytest_cgins.mark
def averaged(x: Tensor) -> Tensor:
    """The mean over all ranks."""
    return summed(x) / distributed.get_world_size()


@pytest_cgins.mark
def rows_summed(x: Tensor) -> Tensor:
    """The sum over all rows of all ranks."""
    return summed(x.sum(0))


@pytest_cgins.mark
def sent(x: Tensor) -> Tensor:
    """What rank 0 has."""
    received = x.clone()
    distributed.broadcast(received, 0)
    return received


@pytest_cgins.mark
def gathered(x: Tensor) -> Tensor:
    """The rows of all ranks, one rank's after another's."""
    parts = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, x)
    return torch.cat(parts)


@pytest_cgins.mark
def scattered(x: Tensor) -> Tensor:
    """This rank's share of the rows of the sum."""
    parts = summed(x).chunk(distributed.get_world_size())
    return parts[distributed.get_rank()].clone()


@pytest_cgins.mark
def routed(x: Tensor) -> Tensor:
    """Rows for this rank, of all ranks: what experts get."""
    received = torch.empty_like(x)
    distributed.all_to_all_single(received, x)
    return received


@pytest_cgins.mark
def product_summed(x: Tensor, weight: Tensor) -> Tensor:
    """A linear layer whose inner dimension is spread over the ranks."""
    return summed(x @ weight)


@pytest_cgins.mark
def product_scattered(x: Tensor, weight: Tensor) -> Tensor:
    """The same; each rank keeps its share of the rows."""
    return scattered(x @ weight)


@pytest_cgins.mark
def gathered_product(x: Tensor, weight: Tensor) -> Tensor:
    """A linear layer on the rows of all ranks, with the same weight on each."""
    return gathered(x) @ weight
