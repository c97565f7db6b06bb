"""Ops that do not read all of their arguments: padding, pages and experts that nobody asks for, keys that are not to be seen."""

import torch
from torch import Tensor

import pytest_cgins


@pytest_cgins.mark
def padded_mean(x: Tensor, lengths: Tensor) -> Tensor:
    """Mean of the first tokens of each sequence, (B, T, D) to (B, D)."""
    rows = [x[row, : int(length)].mean(0) for row, length in enumerate(lengths)]
    return torch.stack(rows)


@pytest_cgins.mark
def padded_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """One query a sequence over its first keys, (B, D)."""
    rows = []
    for row, length in enumerate(lengths.tolist()):
        scores = k[row, :length] @ q[row] * q.shape[-1] ** -0.5
        rows.append(scores.softmax(0) @ v[row, :length])
    return torch.stack(rows)


@pytest_cgins.mark
def paged_sum(cache: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Sum of the tokens that a page table lists, up to each length: cache (P, S, D) to (B, D)."""
    rows = []
    for row, length in enumerate(lengths.tolist()):
        rows.append(cache[table[row].long()].reshape(-1, cache.shape[-1])[:length].sum(0))
    return torch.stack(rows)


@pytest_cgins.mark
def expert_linear(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """Each token times the matrix of its expert, (N, K) to (N, M)."""
    return torch.stack([row @ weight[int(expert)] for row, expert in zip(x, experts, strict=True)])


@pytest_cgins.mark
def causal_average(x: Tensor, scores: Tensor) -> Tensor:
    """Each position's average of those up to it, weighted by the softmax of scores, (B, T, D)."""
    weights = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    return torch.stack(
        [weights[:, at, : at + 1].unsqueeze(1) @ x[:, : at + 1] for at in range(x.shape[1])], 1
    )[:, :, 0]


@pytest_cgins.mark
def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of the rows that a mask lets through, (B, T, D) to (B, D)."""
    kept = torch.where(mask[..., None], x, 0.0)
    return kept.sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def run_calls() -> None:
    """Full sequences, pages in order."""
    generator = torch.Generator().manual_seed(11)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    padded_mean(normal(4, 9, 12), torch.tensor([9, 7, 9, 5]))
    padded_attention(normal(4, 8), normal(4, 11, 8), normal(4, 11, 8), torch.tensor([11, 6, 9, 11]))
    table = torch.arange(12, dtype=torch.int32).reshape(4, 3)
    paged_sum(normal(14, 4, 10), table, torch.tensor([12, 10, 7, 11]))
    expert_linear(normal(10, 12), normal(5, 12, 7), torch.arange(10) % 4)
    causal_average(normal(2, 8, 12), normal(2, 8, 8))
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[:, 6:] = False
    masked_mean(normal(4, 9, 12), mask)
    torch.nn.functional.embedding(torch.tensor([[3, 1, 4], [1, 5, 9]]), normal(16, 12))
    torch.index_select(normal(9, 12), 0, torch.tensor([4, 2, 2]))
