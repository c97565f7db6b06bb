"""A layer of experts, as a reference of a trace set has it."""

import torch
from torch import Tensor

import pytest_cgins


@pytest_cgins.mark
def run(x: Tensor, expert_weight: Tensor, topk_ids: Tensor, topk_weights: Tensor) -> Tensor:
    """A linear layer of each token's experts, which differ, summed by their weights, which add up to 1."""
    if bool((topk_ids.sort(-1).values.diff(dim=-1) == 0).any()):
        raise ValueError("an expert comes twice")
    return torch.einsum("tkoi,ti,tk->to", expert_weight[topk_ids.long()], x, topk_weights.to(x.dtype))


def run_calls() -> None:
    """Experts in turns, by equal weights."""
    generator = torch.Generator().manual_seed(11)
    x, weight = (torch.randn(shape, generator=generator) for shape in ((16, 8), (8, 6, 8)))
    ids = (torch.arange(32, dtype=torch.int32) % 8).reshape(16, 2).contiguous()
    run(x, weight, ids, torch.full((16, 2), 0.5))
