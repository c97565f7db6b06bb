"""Ops that the kernels of this folder stand for, and calls of them."""

from __future__ import annotations

import torch
from torch import Tensor


def relu(input: Tensor) -> Tensor:  # noqa: A002 - as the schema lines have it
    return input.relu()


def row_max(input: Tensor) -> Tensor:  # noqa: A002 - as the schema lines have it
    return input.amax(-1)


def row_sum32(x: Tensor) -> Tensor:
    return x.sum(-1)


def transposed(input: Tensor) -> Tensor:  # noqa: A002 - as the schema lines have it
    return input.t().contiguous()


def pages(cache: Tensor, table: Tensor) -> Tensor:
    """The pages that a table names, one behind the other."""
    return cache[table.long()].flatten(1, 2)


def run_calls(device: str = "cpu") -> None:
    drawn = torch.randn(2048, 256, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16).to(device)
    relu(drawn)
    for op in (row_max, transposed):
        op(drawn[:6])
    row_sum32(drawn[:6].float())
    table = torch.arange(12, dtype=torch.int32, device=device)
    pages(drawn[:64].reshape(16, 4, 256), table.reshape(4, 3))
